from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hpcjf.errors import ModelError, TrainingError
from hpcjf.study import Adapter, ModelSection
from hpcjf.training.policy import Policy, load_policy
from hpcjf.training.tiny import Shape, untrained


def section(adapter: str = "none", **options: object) -> ModelSection:
    return ModelSection.model_validate({"name": "random", "path": ".", "adapter": {"type": adapter}} | options)


def logits(policy: Policy) -> torch.Tensor:
    found: torch.Tensor = policy.model(torch.tensor([[4, 5, 6]]), use_cache=False).logits
    return found


def nudge(policy: Policy) -> None:
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05


def copy_of(folder: Path, target: Path, **changes: object) -> Path:
    """A copy of the model folder whose config.json is changed."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_a_missing_folder_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model folder") as caught:
        load_policy(section(), tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_folder_is_named_in_one_line(tmp_path: Path, model_folder: Path) -> None:
    broken = copy_of(model_folder, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}")
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        load_policy(section(), broken)
    assert "\n" not in str(caught.value)
    (broken / "config.json").unlink()
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_policy(section(), broken)


def test_an_adapter_folder_is_no_model(tmp_path: Path, model_folder: Path) -> None:
    folder = copy_of(model_folder, tmp_path / "adapter")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="adapter, not a model"):
        load_policy(section(), folder)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, model_folder: Path) -> None:
    small, _ = untrained(Shape(0, 32, 2, 64, 0.0), seed=0)
    small.resize_token_embeddings(12)
    folder = copy_of(model_folder, tmp_path / "mixed")
    small.save_pretrained(folder)
    with pytest.raises(ModelError, match="the tokenizer has id 18, the model 12 embeddings"):
        load_policy(section(), folder)


def test_code_of_the_model_folder_is_not_run_unasked(tmp_path: Path, model_folder: Path) -> None:
    folder = copy_of(
        model_folder, tmp_path / "own", model_type="own", auto_map={"AutoConfig": "m.C", "AutoModelForCausalLM": "m.M"}
    )
    (folder / "m.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ModelError):
        load_policy(section(), folder)
    assert not (tmp_path / "ran").exists()


def test_several_end_tokens_are_gathered_from_all_places(tmp_path: Path, model_folder: Path) -> None:
    folder = copy_of(model_folder, tmp_path / "chat", eos_token_id=[2, 9])
    generation = json.loads((folder / "generation_config.json").read_text()) | {"eos_token_id": 11}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    assert load_policy(section(), folder).eos_ids == (2, 9, 11)


def test_a_tokenizer_without_pad_token_gets_a_filler(tmp_path: Path, model_folder: Path) -> None:
    folder = copy_of(model_folder, tmp_path / "nopad")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("pad_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    policy = load_policy(section(), folder)
    assert policy.tokenizer.pad_token_id is None
    assert policy.pad_id == 2


def test_dropout_is_off(tmp_path: Path, model_folder: Path) -> None:
    policy = load_policy(section(), copy_of(model_folder, tmp_path / "drop", attention_dropout=0.5))
    assert torch.equal(logits(policy), logits(policy))
    assert not policy.model.training


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_the_reference_stays_while_the_policy_moves(model_folder: Path, adapter: str) -> None:
    policy = load_policy(section(adapter), model_folder)
    before = logits(policy).detach()
    with policy.reference() as model:
        assert torch.equal(model(torch.tensor([[4, 5, 6]]), use_cache=False).logits, before)
    nudge(policy)
    assert not torch.allclose(logits(policy), before)
    with policy.reference() as model:
        found = model(torch.tensor([[4, 5, 6]]), use_cache=False).logits
    assert torch.equal(found, before)
    assert not found.requires_grad
    assert logits(policy).requires_grad


def test_lora_trains_only_the_adapter(model_folder: Path) -> None:
    policy = load_policy(section("lora"), model_folder)
    names = [name for name, parameter in policy.model.named_parameters() if parameter.requires_grad]
    assert len(names) == 2 * 4 * 2
    assert all(".lora_" in name for name in names)


def test_a_new_adapter_is_a_function_of_the_seed(model_folder: Path) -> None:
    one, same, other = (load_policy(section("lora"), model_folder, seed=seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, one.parameters(), same.parameters()))
    assert not all(map(torch.equal, one.parameters(), other.parameters()))


def test_a_target_that_the_model_lacks_is_refused(model_folder: Path) -> None:
    model = ModelSection(name="m", path=".", adapter=Adapter(type="lora", targets=("q_proj", "query_key_value")))
    with pytest.raises(TrainingError, match="query_key_value is no module"):
        load_policy(model, model_folder)


def test_nothing_trainable_is_an_error(policy: Policy) -> None:
    policy.model.requires_grad_(False)
    with pytest.raises(TrainingError, match="nothing trainable"):
        policy.parameters()


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_saved_weights_come_back_bit_for_bit(tmp_path: Path, model_folder: Path, adapter: str) -> None:
    policy, fresh = (load_policy(section(adapter), model_folder) for _ in range(2))
    nudge(policy)
    policy.save(tmp_path)
    fresh.load(tmp_path)
    assert all(map(torch.equal, policy.parameters(), fresh.parameters()))
    assert torch.equal(logits(policy), logits(fresh))


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, model_folder: Path, adapter: str) -> None:
    wide = Shape(0, 48, 2, 64, 0.0)
    model, tokenizer = untrained(wide, seed=0)
    model.save_pretrained(tmp_path / "wide")
    tokenizer.save_pretrained(tmp_path / "wide")
    load_policy(section(adapter), tmp_path / "wide").save(tmp_path / "saved")
    policy = load_policy(section(adapter), model_folder)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    with pytest.raises(ModelError):
        policy.load(tmp_path / "saved")
    with pytest.raises(ModelError):
        policy.load(tmp_path / "nowhere")
    assert len(before) == len(policy.parameters())


def test_the_reference_identity_tells_revisions_apart_and_ignores_training(tmp_path: Path, model_folder: Path) -> None:
    full, lora = load_policy(section(), model_folder), load_policy(section("lora"), model_folder)
    identity, lora_identity = full.reference_identity(), lora.reference_identity()
    nudge(full)
    nudge(lora)
    assert (full.reference_identity(), lora.reference_identity()) == (identity, lora_identity)
    other, tokenizer = untrained(Shape(0, 32, 2, 64, 0.0), seed=4)
    other.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert load_policy(section(), tmp_path).reference_identity() != identity


def test_bfloat16_keeps_full_weights_and_adapters_in_float32(model_folder: Path) -> None:
    full = load_policy(section(dtype="bfloat16"), model_folder)
    assert {p.dtype for p in full.parameters()} == {torch.float32}
    with full.precision():
        assert logits(full).dtype == torch.bfloat16
    lora = load_policy(section("lora", dtype="bfloat16"), model_folder)
    assert {p.dtype for p in lora.parameters()} == {torch.float32}
    assert lora.model.get_input_embeddings().weight.dtype == torch.bfloat16


def test_full_weights_do_not_pay_for_the_import_of_peft(model_folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from hpcjf.study import ModelSection;"
        "import hpcjf.training.trainer; from hpcjf.training.policy import load_policy;"
        f"load_policy(ModelSection(name='m', path='.'), Path({str(model_folder)!r}));"
        "print(sorted({'peft', 'datasets', 'sklearn', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
