"""From names to what a job can use: recipes, spaces, models, data. And what cannot be resolved."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from hpcjf.analysis.dead import dead_dimensions
from hpcjf.config import at_line, read_study
from hpcjf.errors import HpcjfError, ModelError, StudyError, TaskError, UserError
from hpcjf.resolve import cache_folder, resolve_sizes, resolve_study
from hpcjf.study import AlgorithmSection, IntegerRange, RealRange, Study
from hpcjf.training.objectives.chosen import policy_gradient
from hpcjf.training.objectives.table import OBJECTIVES

Resolve = Callable[..., Study]
FakeModel = Callable[[str, int], Path]


@pytest.fixture
def resolve(tmp_path: Path, fake_model: FakeModel) -> Resolve:
    """Resolves a study of two models, with sections replaced; a section of None is left out."""
    small, large = fake_model("small", 1000), fake_model("large", 5000)

    def resolved(**sections: Any) -> Study:
        models = [{"name": "s", "path": str(small)}, {"name": "l", "path": str(large)}]
        given = {"models": models, "recipe": "tiny_arithmetic"} | sections
        file = tmp_path / "study.yaml"
        file.write_text(yaml.safe_dump({k: v for k, v in given.items() if v is not None}, sort_keys=False))
        study, lines = read_study(file)
        return resolve_study(study, file, lines)

    return resolved


def refused(resolve: Resolve, kind: type[UserError], tmp_path: Path, **sections: Any) -> str:
    """What is said, without the folder of the test."""
    with pytest.raises(kind) as caught:
        resolve(**sections)
    assert caught.value.exit_code == 2
    assert caught.value.fix, "an error without a way out"
    return str(caught.value).replace(f"{tmp_path}/", "")


class TestRecipe:
    def test_a_recipe_by_name_brings_values_and_ranges(self, resolve: Resolve) -> None:
        study = resolve()
        assert study.recipe == {
            "learning_rate": 1e-4, "lr_scheduler": "constant", "clip_range": 0.2,
            "grad_clip": 1.0, "kl_coef": 0.001, "rollouts": 5,
        }  # fmt: skip
        assert study.space is not None
        assert tuple(study.space) == tuple(study.recipe)
        assert study.space["learning_rate"] == RealRange(low=1e-6, high=1e-2, log=True)

    @pytest.mark.parametrize("name", ["verl_grpo_gsm8k", "lora_small", "tiny_arithmetic"])
    def test_shipped_recipes_resolve(self, resolve: Resolve, name: str) -> None:
        assert len(resolve(recipe=name).recipe) == 6

    def test_what_is_not_searched_becomes_a_fixed_setting(self, resolve: Resolve) -> None:
        study = resolve(space={"rollouts": {"type": "integer", "low": 2, "high": 8}})
        assert study.recipe == {"rollouts": 5}
        assert study.algorithm.learning_rate == 1e-4
        assert study.algorithm.clip_range == 0.2

    def test_a_setting_under_algorithm_wins_over_the_recipe_and_is_not_searched(self, resolve: Resolve) -> None:
        study = resolve(algorithm={"kl_coef": 0.01})
        assert study.algorithm.kl_coef == 0.01
        assert isinstance(study.recipe, dict)
        assert study.space is not None
        assert "kl_coef" not in study.recipe
        assert "kl_coef" not in study.space

    def test_values_may_stand_in_the_study_and_gaps_are_the_algorithms(self, resolve: Resolve) -> None:
        space = {"rollouts": {"type": "integer", "low": 2, "high": 8}, "kl_coef": {"type": "real", "low": 0, "high": 1}}
        study = resolve(recipe={"rollouts": 4}, space=space)
        assert study.recipe == {"rollouts": 4, "kl_coef": 0.001}
        assert list(study.space or ()) == ["kl_coef", "rollouts"], "not in canonical order"

    def test_a_recipe_file_stands_beside_the_study(self, resolve: Resolve, tmp_path: Path) -> None:
        ranges = {"rollouts": {"type": "integer", "low": 2, "high": 3}}
        mine = {"model_class": "any", "source": "me", "values": {"rollouts": 3}, "ranges": ranges}
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine))
        study = resolve(recipe="mine.yaml")
        assert study.recipe == {"rollouts": 3}
        assert study.space == {"rollouts": IntegerRange(type="integer", low=2, high=3)}

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ({"model_class": None, "values": {}, "ranges": {}}, "mine.yaml:1: model_class cannot be empty; give text"),
            ({"values": {}}, "mine.yaml:1: key ranges is missing; add it"),
            ({"valuse": {}, "ranges": {}}, "mine.yaml:3: unknown key valuse (and 1 more); did you mean values?"),
            (
                {"values": {"rolouts": 3}, "ranges": {}},
                "mine.yaml:4: values.rolouts: the algorithm has no hyperparameter of this name; did",
            ),
            (
                {"values": {}, "ranges": {"lr": {"type": "real", "low": 1, "high": 2}}},
                "mine.yaml:5: ranges.lr: the algorithm has",
            ),
            (
                {"values": {}, "ranges": {"kl_coef": {"type": "real", "low": 1, "hi": 2}}},
                "mine.yaml:8: unknown key ranges.kl_coef.hi",
            ),
            (
                {"values": {"kl_coef": 3}, "ranges": {"kl_coef": {"type": "real", "low": 0, "high": 1}}},
                "study.yaml:6: space.kl_coef does not contain the recipe's value 3; widen it",
            ),
            ({"values": {}, "ranges": {}}, "study.yaml:1: space is empty; name at least one"),
        ],
    )
    def test_faults_of_a_recipe_file_name_that_file(
        self, resolve: Resolve, tmp_path: Path, content: dict[str, Any], said: str
    ) -> None:
        text = yaml.safe_dump({"model_class": "any", "source": "me"} | content, sort_keys=False)
        (tmp_path / "mine.yaml").write_text(text)
        assert refused(resolve, StudyError, tmp_path, recipe="mine.yaml").startswith(said)

    def test_a_recipe_that_is_not_there(self, resolve: Resolve, tmp_path: Path) -> None:
        said = refused(resolve, StudyError, tmp_path, recipe="tiny_arithmetics")
        assert said.startswith(
            "study.yaml:6: no recipe tiny_arithmetics; name a file, or one that comes along (did you mean"
        )
        assert "no recipe absent.yaml; name a file" in refused(resolve, StudyError, tmp_path, recipe="absent.yaml")
        assert "no recipe xxx" in refused(resolve, StudyError, tmp_path, recipe="x" * 300)
        assert "no recipe a\0b" in refused(resolve, StudyError, tmp_path, recipe="a\0b")
        assert "no recipe ~nobody-here/x" in refused(resolve, StudyError, tmp_path, recipe="~nobody-here/x")

    def test_an_empty_recipe_file(self, resolve: Resolve, tmp_path: Path) -> None:
        (tmp_path / "mine.yaml").touch()
        said = refused(resolve, StudyError, tmp_path, recipe="mine.yaml")
        assert said == "mine.yaml:1: the file cannot be empty; give a mapping of keys to values"


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (
            {"recipe": {"rolouts": 4}},
            "study.yaml:7: recipe.rolouts: the algorithm has no hyperparameter of this name; did you",
        ),
        ({"recipe": {"prompts_per_step": 4}}, "study.yaml:7: recipe.prompts_per_step: the algorithm has no"),
        ({"recipe": {"rollouts": 4}}, "study.yaml:1: space is empty; name at least one hyperparameter to search, of"),
        (
            {"recipe": {"rollouts": 1}, "space": {"kl_coef": {"type": "real", "low": 0, "high": 1}}},
            "study.yaml:7: rollouts cannot be 1; give a number greater than or equal to 2",
        ),
        ({"space": {}}, "study.yaml:7: space is empty"),
        (
            {"space": {"leaning_rate": {"type": "real", "low": 1, "high": 2}}},
            "study.yaml:8: space.leaning_rate: the algorithm has no hyperparameter of this name; did you mean learning",
        ),
        (
            {"space": {"kl_coef": {"type": "real", "low": 0.1, "high": 1}}},
            "study.yaml:8: space.kl_coef does not contain the recipe's value 0.001; widen it, or",
        ),
        (
            {"space": {"lr_scheduler": {"type": "categorical", "choices": ["cosine", "linear"]}}},
            "study.yaml:8: space.lr_scheduler cannot be 'linear'; did you mean cosine? (one of: constant, cosine)",
        ),
        (
            {"recipe": {"lr_scheduler": "constant"}, "space": {"lr_scheduler": {"type": "real", "low": 1, "high": 2}}},
            "study.yaml:9: space.lr_scheduler cannot be 1.0; one of: constant, cosine",
        ),
        (
            {"space": {"rollouts": {"type": "integer", "low": 1, "high": 8}}},
            "study.yaml:8: space.rollouts cannot be 1; give a number greater than or equal to 2",
        ),
        (
            {"space": {"rollouts": {"type": "real", "low": 2, "high": 8}}},
            "study.yaml:8: space.rollouts takes whole numbers only; write type: integer",
        ),
        (
            {"space": {"rollouts": {"type": "categorical", "choices": [5, 1]}}},
            "study.yaml:8: space.rollouts cannot be 1; give",
        ),
        (
            {"space": {"rollouts": {"type": "categorical", "choices": [True, 5]}}},
            "study.yaml:8: space.rollouts cannot be true; give a number",
        ),
        (
            {"space": {"learning_rate": {"type": "real", "low": -1.0, "high": 1.0}}},
            "study.yaml:8: space.learning_rate cannot be -1.0; give a number greater than 0",
        ),
        (
            {"space": {"learning_rate": {"type": "real", "low": 0, "high": 1.0}}},
            "study.yaml:8: space.learning_rate cannot be 0.0; give a number greater than 0",
        ),
        (
            {"algorithm": {"kl_coef": 0.1}, "space": {"kl_coef": {"type": "real", "low": 0, "high": 1}}},
            "study.yaml:10: kl_coef is searched here and fixed under algorithm; keep one of the two",
        ),
        (
            {"recipe": {"rollouts": "many"}, "space": {"rollouts": {"type": "integer", "low": 2, "high": 8}}},
            "study.yaml:9: space.rollouts does not contain the recipe's value many",
        ),
        (
            {"recipe": {"rollouts": True}, "space": {"rollouts": {"type": "integer", "low": 2, "high": 8}}},
            "study.yaml:9: space.rollouts does not contain the recipe's value True",
        ),
    ],
)
def test_spaces_and_recipes_that_no_study_has(
    resolve: Resolve, tmp_path: Path, sections: dict[str, Any], said: str
) -> None:
    assert refused(resolve, StudyError, tmp_path, **sections).startswith(said)


ROLLOUTS = {"type": "integer", "low": 2, "high": 16}
CLIP = {"type": "real", "low": 0.1, "high": 0.4}
SCHEDULE = {"type": "categorical", "choices": ["constant", "cosine"]}


OBJECTIVE = {"type": "categorical", "choices": ["grpo", "dapo", "hargo"]}
HIGH = {"type": "real", "low": 0.2, "high": 0.4, "when": {"objective": "dapo"}}


class TestObjectives:
    def test_a_recipe_for_another_objective_lends_what_all_objectives_have(self, resolve: Resolve) -> None:
        study = resolve(algorithm={"objective": "gspo"})
        assert set(study.recipe) == set(study.space or ()) == {"learning_rate", "lr_scheduler", "grad_clip", "rollouts"}
        assert study.algorithm.clip_range is study.algorithm.kl_coef is None
        assert set(resolve(algorithm={"objective": "grpo"}).recipe) > set(study.recipe)

    def test_null_means_the_objective_s_default_and_may_start_a_search(self, resolve: Resolve) -> None:
        space = {
            "kl_coef": {"type": "real", "low": 0.0, "high": 0.1},
            "hargo_alpha": {"type": "real", "low": 0.0, "high": 1.0},
        }
        study = resolve(algorithm={"objective": "hargo"}, space=space)
        assert study.recipe == {"kl_coef": 0.02, "hargo_alpha": 0.3}
        fixed = resolve(algorithm={"kl_coef": None, "clip_range": None})
        assert fixed.algorithm.kl_coef is fixed.algorithm.clip_range is None

    def test_the_objective_is_a_dimension_and_others_hang_on_it(self, resolve: Resolve) -> None:
        space = {"objective": OBJECTIVE, "clip_range_high": HIGH}
        study = resolve(space=space)
        assert study.recipe == {"objective": "grpo"}
        assert list(study.space or ()) == ["objective", "clip_range_high"]
        assert study.algorithm.clip_range_high is None, "inactive means the objective's default, not the recipe's value"
        started = resolve(space=space, recipe={"objective": "dapo", "clip_range_high": 0.3})
        assert started.recipe == {"objective": "dapo", "clip_range_high": 0.3}
        assert started.algorithm.clip_range_high is None
        assert resolve(space=space, recipe={"objective": "dapo"}).recipe["clip_range_high"] == 0.28  # type: ignore[index]
        given = [{"objective": "dapo", "clip_range_high": 0.3}]
        assert resolve(space=space, search={"configurations": given}).search.configurations == tuple(given)

    def test_the_example_of_the_docs_starts_from_each_objective_s_defaults(self, resolve: Resolve) -> None:
        page = (Path(__file__).parents[1] / "docs/objectives.md").read_text()
        example = re.findall(r"```yaml\n(.*?)```", page, re.S)[0].replace("e-", ".0e-")
        study = resolve(**yaml.safe_load(example))
        assert study.recipe == {"objective": "grpo", "learning_rate": 1e-4}
        assert dead_dimensions(study) == {}
        for objective in ("grpo", "dapo", "hargo"):
            trained = AlgorithmSection.model_validate(study.algorithm.model_dump() | {"objective": objective})
            assert policy_gradient(trained) == OBJECTIVES[objective]

    @pytest.mark.parametrize(
        ("sections", "said"),
        [
            (
                {"space": {"dual_clip": {"type": "real", "low": 2, "high": 5}}},
                "space.dual_clip: neither the recipe nor its objective has a value for it; give recipe.dual_clip",
            ),
            (
                {"space": {"objective": OBJECTIVE, "clip_range_high": HIGH}}
                | {"search": {"configurations": [{"objective": "dapo"}]}},
                "search.configurations.0 has no value for clip_range_high, and neither has the recipe; add it",
            ),
            (
                {"space": {"rollouts": ROLLOUTS}, "search": {"constraints": ["dual_clip <= rollouts"]}},
                "'dual_clip <= rollouts' reads dual_clip, which is left to the objective; set algorithm.dual_clip",
            ),
            ({"recipe": {"objective": "gpro"}, "space": {"rollouts": ROLLOUTS}}, "objective cannot be 'gpro'; did you"),
            ({"algorithm": {"dual_clip": 1}}, "algorithm.dual_clip cannot be 1; give a number greater than 1"),
            ({"algorithm": {"value_coef": True}}, "algorithm: value_coef cannot be true; give a number"),
        ],
    )
    def test_what_is_missing_is_told(
        self, resolve: Resolve, tmp_path: Path, sections: dict[str, Any], said: str
    ) -> None:
        assert said in refused(resolve, StudyError, tmp_path, **sections)


class TestConditions:
    def test_the_recipe_keeps_what_is_active_in_it(self, resolve: Resolve) -> None:
        space = {"lr_scheduler": SCHEDULE, "clip_range": {**CLIP, "when": {"lr_scheduler": "cosine"}}}
        study = resolve(space=space, recipe={"lr_scheduler": "constant", "clip_range": 0.15})
        assert study.recipe == {"lr_scheduler": "constant"}
        assert study.algorithm.clip_range == 0.15, "an inactive dimension is trained with the recipe's value"
        study = resolve(space=space, recipe={"lr_scheduler": "cosine", "clip_range": 0.15})
        assert study.recipe == {"lr_scheduler": "cosine", "clip_range": 0.15}

    def test_a_setting_may_decide(self, resolve: Resolve) -> None:
        space = {"rollouts": ROLLOUTS, "clip_range": {**CLIP, "when": {"minibatches": [2, 4]}}}
        assert "clip_range" in resolve(space=space, algorithm={"minibatches": 4}).recipe
        assert resolve(space=space, algorithm={"minibatches": 1}).recipe == {"rollouts": 5}

    def test_the_frozen_study_reads_back(self, resolve: Resolve) -> None:
        space = {"lr_scheduler": SCHEDULE, "clip_range": {**CLIP, "when": {"lr_scheduler": "cosine"}}}
        study = resolve(space=space, search={"constraints": ["clip_range < 0.3"]})
        assert Study.model_validate(study.model_dump(mode="json")) == study

    @pytest.mark.parametrize(
        ("when", "said"),
        [
            ({"lr_schedule": "cosine"}, "study.yaml:17: space.clip_range.when: nothing is called lr_schedule; known: "),
            ({"lr_scheduler": "linear"}, "study.yaml:17: space.clip_range.when: space.lr_scheduler never is 'linear'"),
            ({"clip_range": 0.2}, "study.yaml:17: space.clip_range.when: clip_range is a real range"),
            ({"minibatches": 0}, "study.yaml:13: algorithm.minibatches cannot be 0; give a number greater"),
            ({"objective": "grppo"}, "study.yaml:13: algorithm.objective cannot be 'grppo'; did you mean grpo?"),
        ],
    )
    def test_a_condition_that_nothing_meets(
        self, resolve: Resolve, tmp_path: Path, when: dict[str, Any], said: str
    ) -> None:
        space = {"lr_scheduler": SCHEDULE, "clip_range": {**CLIP, "when": when}}
        assert refused(resolve, StudyError, tmp_path, space=space).startswith(said)

    def test_a_circle(self, resolve: Resolve, tmp_path: Path) -> None:
        space = {
            "lr_scheduler": {**SCHEDULE, "when": {"rollouts": 4}},
            "rollouts": {**ROLLOUTS, "when": {"lr_scheduler": "cosine"}},
        }
        assert "in a circle; take one of them out" in refused(resolve, StudyError, tmp_path, space=space)


class TestPriorKnowledge:
    SPACE: ClassVar[dict[str, Any]] = {"rollouts": ROLLOUTS, "lr_scheduler": SCHEDULE, "clip_range": CLIP}

    def test_configurations_of_the_space_pass_as_they_are(self, resolve: Resolve) -> None:
        given = [{"rollouts": 4}, {}, {"clip_range": 0.3, "lr_scheduler": "cosine"}]
        assert resolve(space=self.SPACE, search={"configurations": given}).search.configurations == tuple(given)

    @pytest.mark.parametrize(
        ("config", "said"),
        [
            ({"rolouts": 4}, "rolouts: the space has no such dimension; did you mean rollouts?"),
            ({"grad_clip": 1.0}, "grad_clip: the space has no such dimension; known: lr_scheduler"),
            ({"rollouts": 99}, "rollouts: space.rollouts does not contain 99; widen the space, or give another value"),
            ({"rollouts": 4.5}, "rollouts: space.rollouts does not contain 4.5"),
            ({"rollouts": True}, "rollouts: space.rollouts does not contain True"),
            ({"clip_range": "wide"}, "clip_range: space.clip_range does not contain wide"),
            ({"lr_scheduler": "linear"}, "lr_scheduler: space.lr_scheduler does not contain linear"),
        ],
    )
    def test_others_are_refused_at_their_line(
        self, resolve: Resolve, tmp_path: Path, config: dict[str, Any], said: str
    ) -> None:
        text = refused(resolve, StudyError, tmp_path, space=self.SPACE, search={"configurations": [{}, config]})
        line = (tmp_path / "study.yaml").read_text().splitlines()[int(text.split(":")[1]) - 1]
        assert text.split(": ", 1)[1].startswith(f"search.configurations.1.{said}")
        assert next(iter(config)) in line

    def test_a_warm_start_is_named_from_the_studys_folder_on(self, resolve: Resolve, tmp_path: Path) -> None:
        assert resolve(search={"warm_start": "old/run"}).search.warm_start == str(tmp_path / "old/run")
        assert resolve().search.warm_start is None


class TestConstraints:
    SPACE: ClassVar[dict[str, Any]] = {"rollouts": ROLLOUTS, "clip_range": CLIP}

    def test_those_that_hold_pass(self, resolve: Resolve) -> None:
        constraints = ["rollouts * prompts_per_step <= 128", "clip_range < 0.3"]
        assert resolve(space=self.SPACE, search={"constraints": constraints}).search.constraints == tuple(constraints)

    @pytest.mark.parametrize(
        ("search", "said"),
        [
            (
                {"constraints": ["clip_range < 0.3", "rollouts <= 4"]},
                "study.yaml:19: the recipe breaks 'rollouts <= 4' with rollouts 5; loosen it, or change the value",
            ),
            (
                {"constraints": ["rollouts * prompts_per_step < 80"]},
                "study.yaml:18: the recipe breaks 'rollouts * prompts_per_step < 80' with rollouts 5, prompts_per_s",
            ),
            (
                {"constraints": ["rollouts < 8"], "configurations": [{"clip_range": 0.4}, {"rollouts": 9}]},
                "study.yaml:18: search.configurations.1 breaks 'rollouts < 8' with rollouts 9",
            ),
            (
                {"constraints": ["rollouts > 16"]},
                "study.yaml:18: none of 10,000 random configurations meets 'rollouts > 16'; loosen it, or widen",
            ),
            (
                {"constraints": ["rollouts < 9", "clip_range < 0.3", "rollouts > 8"]},
                "study.yaml:20: none of 10,000 random configurations meets 'rollouts > 8' and those above it; loosen",
            ),
            (
                {"constraints": ["rollouts < 9", "rollout > 8"]},
                "study.yaml:19: search.constraints.1: 'rollout > 8': no number is called rollout; known: prompts_per_",
            ),
            (
                {"constraints": ["lr_scheduler == 1"]},
                "study.yaml:18: search.constraints.0: 'lr_scheduler == 1': no number is called lr_scheduler; known: ",
            ),
            (
                {"constraints": ["rollouts"]},
                "study.yaml:18: search.constraints.0: 'rollouts' compares no numbers; write",
            ),
            (
                {"constraints": "rollouts < 3"},
                "study.yaml:17: search.constraints cannot be 'rollouts < 3'; give a list",
            ),
        ],
    )
    def test_those_that_do_not_are_refused_at_their_line(
        self, resolve: Resolve, tmp_path: Path, search: dict[str, Any], said: str
    ) -> None:
        assert refused(resolve, StudyError, tmp_path, space=self.SPACE, search=search).startswith(said)

    def test_an_inactive_value_does_not_count(self, resolve: Resolve) -> None:
        space = {"lr_scheduler": SCHEDULE, "clip_range": {**CLIP, "when": {"lr_scheduler": "cosine"}}}
        recipe = {"lr_scheduler": "constant", "clip_range": 0.2}
        study = resolve(space=space, recipe=recipe, search={"constraints": ["clip_range > 0.15"]})
        assert study.recipe == {"lr_scheduler": "constant"}


def test_whole_numbers_of_a_recipe_become_what_the_search_writes(resolve: Resolve) -> None:
    space = {"rollouts": ROLLOUTS, "grad_clip": {"type": "real", "low": 0.1, "high": 10}}
    study = resolve(space=space, recipe={"rollouts": 5.0, "grad_clip": 1})
    assert study.recipe == {"rollouts": 5, "grad_clip": 1.0}
    assert [type(value) for value in study.recipe.values()] == [int, float]


def one(path: object, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "s", "path": str(path), **more}]


class TestEmbedder:
    def test_a_folder_becomes_absolute(self, resolve: Resolve, fake_model: FakeModel, tmp_path: Path) -> None:
        folder, rows = fake_model("embedder", 10), tmp_path / "rows.json"
        rows.write_text("[]")
        task = {"names": ["plp"], "path": "rows.json", "embedder": os.path.relpath(folder, tmp_path)}
        assert resolve(task=task).task.embedder == str(folder)

    def test_one_that_cannot_be_had_is_refused_before_any_job(self, resolve: Resolve, tmp_path: Path) -> None:
        (tmp_path / "rows.json").write_text("[]")
        task = {"names": ["plp"], "path": "rows.json", "embedder": "nobody/has-this"}
        assert "embedder: no folder and no hub model nobody/has-this" in refused(
            resolve, ModelError, tmp_path, task=task
        )

    def test_it_is_left_alone_where_no_task_needs_it(self, resolve: Resolve) -> None:
        assert resolve(task={"embedder": "nobody/has-this"}).task.embedder == "nobody/has-this"


class TestModel:
    def test_parameters_are_counted_without_a_weight(self, resolve: Resolve) -> None:
        assert [model.parameters for model in resolve().models] == [1000, 5000]

    def test_shards_are_added_up(self, resolve: Resolve, fake_model: FakeModel) -> None:
        folder, other = fake_model("sharded", 2000), fake_model("other", 500)
        os.replace(other / "model.safetensors", folder / "model-2.safetensors")
        assert resolve(models=one(folder)).target.parameters == 2500

    def test_a_folder_is_relative_to_the_study_and_becomes_absolute(self, resolve: Resolve, tmp_path: Path) -> None:
        assert resolve(models=one("models/small")).target.path == str(tmp_path / "models/small")

    def test_a_home_folder_is_found(self, resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        assert resolve(models=one("~/models/small")).target.path == str(tmp_path / "models/small")

    def test_weights_of_another_format_need_their_count(
        self, resolve: Resolve, fake_model: FakeModel, tmp_path: Path
    ) -> None:
        (fake_model("old", 1000) / "model.safetensors").unlink()
        said = refused(resolve, ModelError, tmp_path, models=one("models/old"))
        assert (
            said == "study.yaml:3: model s: models/old holds no *.safetensors; convert its weights, or set parameters"
        )
        assert resolve(models=one("models/old", parameters=7)).target.parameters == 7

    def test_a_built_in_model_is_taken_from_the_cache(
        self, resolve: Resolve, fake_model: FakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HPCJF_CACHE", str(tmp_path))
        fake_model("tiny-s", 3000)
        target = resolve(models=one("builtin:tiny-s")).target
        assert (target.path, target.parameters) == (str(tmp_path / "models/tiny-s"), 3000)

    def test_the_cache_is_the_users_unless_said_otherwise(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("HPCJF_CACHE", "relative")
        assert cache_folder() == Path.cwd() / "relative"
        monkeypatch.setenv("HPCJF_CACHE", "")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_folder() == tmp_path / ".cache/hpcjf"

    @pytest.mark.parametrize(
        ("path", "said"),
        [
            ("./absent", "study.yaml:3: model s: no folder absent; name a model folder, a hub id or builtin:tiny-s"),
            ("/absent/model", "study.yaml:3: model s: no folder /absent/model; name"),
            ("~nobody-here/model", "study.yaml:3: model s: no folder ~nobody-here/model; name"),
            ("a/b/c", "study.yaml:3: model s: no folder a/b/c; name"),
            ("absent", "study.yaml:3: model s: no folder absent; name"),
            ("x" * 300, "study.yaml:3: model s: no folder xxx"),
            ("a\0b", "study.yaml:3: model s: no folder a"),
            (
                "nobody-here/absent-model",
                "study.yaml:3: model s: no folder and no hub model nobody-here/absent-model: ",
            ),
            ("builtin:tiny-x", "study.yaml:3: no built-in model tiny-x; did you mean tiny-xs?"),
            ("builtin:../../etc", "study.yaml:3: no built-in model ../../etc; known: tiny-xs, tiny-s, tiny-m, tiny-l"),
        ],
    )
    def test_models_that_are_not_there(self, resolve: Resolve, tmp_path: Path, path: str, said: str) -> None:
        assert refused(resolve, ModelError, tmp_path, models=one(path)).startswith(said)

    def test_a_folder_that_is_no_model(self, resolve: Resolve, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        said = refused(resolve, ModelError, tmp_path, models=one("empty", parameters=7))
        assert said == "study.yaml:3: model s: empty holds no config.json; name a transformers model folder"

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "has a damaged header"),
            (b"\x10\0\0", "has a damaged header"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is no safetensors file"),
            (b"\xff" * 64, "is no safetensors file"),
            ((200).to_bytes(8, "little") + b'{"weight": {"dtype": "F32"', "has a damaged header"),
            ((9).to_bytes(8, "little") + b"\xff\xfe garbage", "has a damaged header"),
            ((8).to_bytes(8, "little") + b"[1, 2]  ", "has a damaged header"),
            ((29).to_bytes(8, "little") + b'{"a": {"data_offsets": [0]}}  ', "has a damaged header"),
            ((8).to_bytes(8, "little") + b'{"a": 1}', "has a damaged header"),
            ((9).to_bytes(8, "little") + b'{"a": {}}', "has a damaged header"),
        ],
    )
    def test_weights_that_are_damaged(
        self, resolve: Resolve, fake_model: FakeModel, tmp_path: Path, content: bytes, said: str
    ) -> None:
        (fake_model("bad", 1000) / "model.safetensors").write_bytes(content)
        text = refused(resolve, ModelError, tmp_path, models=one("models/bad"))
        assert text.startswith("study.yaml:3: ")
        assert "models/bad" in text
        assert said in text
        assert text.endswith("; copy or download it again")

    @pytest.mark.parametrize("kept", [0.5, 0.999])
    def test_weights_that_are_cut_short(
        self, resolve: Resolve, fake_model: FakeModel, tmp_path: Path, kept: float
    ) -> None:
        file = fake_model("short", 1000) / "model.safetensors"
        os.truncate(file, int(file.stat().st_size * kept))
        said = refused(resolve, ModelError, tmp_path, models=one("models/short"))
        assert said == "study.yaml:3: models/short/model.safetensors is cut short; copy or download it again"

    def test_the_proxy_comes_first(self, resolve: Resolve, tmp_path: Path) -> None:
        models = [{"name": "l", "path": "models/large"}, {"name": "s", "path": "models/small"}]
        said = refused(resolve, StudyError, tmp_path, models=models)
        assert said.startswith(
            "study.yaml:1: models must go from proxy to target, yet they have 5,000, 1,000 parameters; put"
        )

    def test_a_built_in_model_that_cannot_be_made(
        self, resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("HPCJF_CACHE", str(tmp_path / "file"))
        said = refused(resolve, ModelError, tmp_path, models=one("builtin:tiny-xs"))
        assert said.startswith("file/models: tiny-xs could not be made: ")
        assert "Not a directory" in said
        assert capfd.readouterr().err == "", "the reason belongs into the one line"


class TestSizes:
    """What a plan needs: nothing is downloaded or made."""

    def sizes(self, tmp_path: Path, *models: dict[str, Any]) -> list[int | None]:
        file = tmp_path / "study.yaml"
        file.write_text(yaml.safe_dump({"models": list(models), "recipe": "tiny_arithmetic"}))
        study, lines = read_study(file)
        return [model.parameters for model in resolve_sizes(study, file, lines).models]

    def test_a_built_in_model_is_known_before_it_is_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_model: FakeModel
    ) -> None:
        monkeypatch.setenv("HPCJF_CACHE", str(tmp_path / "cache"))
        large = fake_model("large", 2_000_000)
        found = self.sizes(tmp_path, {"name": "s", "path": "builtin:tiny-s"}, {"name": "l", "path": str(large)})
        assert found == [445_056, 2_000_000]
        assert not (tmp_path / "cache").exists()

    def test_a_model_of_the_hub_needs_its_size(self, tmp_path: Path) -> None:
        hub = {"name": "q", "path": "nobody-here/absent"}
        assert self.sizes(tmp_path, hub | {"parameters": 7_000_000_000}) == [7_000_000_000]
        with pytest.raises(ModelError) as caught:
            self.sizes(tmp_path, hub)
        assert "study.yaml:3: model q: its size is not known before nobody-here/absent is downloaded" in str(
            caught.value
        )
        assert caught.value.fix == "set parameters, or let hpcjf check download it"

    def test_the_order_of_models_is_checked(self, tmp_path: Path) -> None:
        models = [
            {"name": name, "path": f"nobody-here/{name}", "parameters": size} for name, size in (("a", 9), ("b", 5))
        ]
        with pytest.raises(StudyError, match="models must go from proxy to target, yet they have 9, 5 parameters"):
            self.sizes(tmp_path, *models)


def test_bases_become_folders_and_the_recipe_starts_from_the_first(
    resolve: Resolve, fake_model: Callable[[str, int], Path]
) -> None:
    whole, early, late = (fake_model(name, 1000) for name in ("whole", "early", "late"))
    model = {"name": "m", "path": str(whole), "bases": {"early": str(early), "late": str(late)}}
    base = {"type": "categorical", "choices": ["late", "early"]}
    rate = {"type": "real", "low": 1e-6, "high": 1e-2}
    study = resolve(models=[model], space={"base": base, "learning_rate": rate})
    assert study.models[0].bases == {"early": str(early), "late": str(late)}
    assert isinstance(study.recipe, dict)
    assert study.recipe["base"] == "late"
    assert study.models[0].start("early") == str(early)
    with pytest.raises(ModelError, match="base late: no folder"):
        resolve(models=[model | {"bases": {"late": "./nowhere"}}])


def test_vllm_is_looked_for_before_anything_is_submitted(resolve: Resolve) -> None:
    with pytest.raises(StudyError, match=r"vllm is not installed") as caught:
        resolve(algorithm={"sampler": "vllm"})
    assert "study.yaml:" in caught.value.where
    assert "hpcjf[vllm]" in caught.value.fix


class TestTask:
    def test_questions_are_read_before_anything_runs(self, resolve: Resolve, tmp_path: Path) -> None:
        (tmp_path / "q.jsonl").write_text('{"question": "a", "choices": ["b", "c"], "answer": 1}\n')
        assert resolve(evaluation={"choices": "q.jsonl"}).evaluation.choices == str(tmp_path / "q.jsonl")
        (tmp_path / "q.jsonl").write_text('{"question": "a", "choices": ["b"], "answer": 0}\n')
        for name, what in (("q.jsonl", "row 1: this is no question"), ("none.jsonl", "cannot be read")):
            with pytest.raises(TaskError, match=what) as caught:
                resolve(evaluation={"choices": name})
            assert caught.value.exit_code == 2

    def test_a_path_is_relative_to_the_study(self, resolve: Resolve, tmp_path: Path) -> None:
        (tmp_path / "rows").mkdir()
        assert resolve(task={"names": ["mlperf"], "path": "rows"}).task.path == str(tmp_path / "rows")

    @pytest.mark.parametrize("path", ["absent", "/absent", "~nobody-here/rows", "a\0b", "x" * 300])
    def test_data_that_is_not_there(self, resolve: Resolve, tmp_path: Path, path: str) -> None:
        said = refused(resolve, TaskError, tmp_path, task={"names": ["mlperf"], "path": path})
        assert said.startswith(f"study.yaml:10: task.path: no file or folder {path}; name the data")


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (
            {"extra_directives": {"wrap": "rm"}},
            "study.yaml:7: model s: 'wrap' is not a directive that a study may set; see",
        ),
        (
            {"extra_directives": {"partition\n#SBATCH --uid": "0"}},
            "study.yaml:7: model s: 'partition\\n#sbatch --uid' is not",
        ),
        ({"partition": "a`b`"}, "study.yaml:7: model s: partition = 'a`b`' holds a control character, quote, backtick"),
        ({"partition": "a\tb"}, "study.yaml:7: model s: partition = 'a\\tb' holds a control character"),
        ({"qos": "a\u2028b"}, "study.yaml:7: model s: qos = 'a\\u2028b' holds a control character"),
        ({"account": "a\x85b"}, "study.yaml:7: model s: account = 'a\\x85b' holds a control character"),
        (
            {"extra_directives": {"ntasks": "4"}},
            "study.yaml:7: model s: ntasks = '4' would start several copies of a trial",
        ),
        (
            {"skip_directives": ["job-name"]},
            "study.yaml:7: model s: skip_directives cannot leave out 'job-name'; name a",
        ),
    ],
)
def test_directives_are_refused_where_no_slurm_is_too(
    resolve: Resolve, tmp_path: Path, cluster: dict[str, Any], said: str
) -> None:
    assert refused(resolve, StudyError, tmp_path, cluster={"executor": "local"} | cluster).startswith(said)


def test_a_models_own_directives_are_named_by_their_line(resolve: Resolve, tmp_path: Path) -> None:
    models = one("models/small", resources={"qos": "$(id)"})
    assert refused(resolve, StudyError, tmp_path, models=models).startswith(
        "study.yaml:4: model s: qos = '$(id)' holds"
    )


def test_errors_that_name_a_key_gain_its_line_and_keep_their_kind(tmp_path: Path) -> None:
    file, lines = tmp_path / "study.yaml", {("task",): 3, ("task", "names"): 4}
    with pytest.raises(TaskError) as caught, at_line(file, lines):
        raise TaskError("is wrong", where="task.names", fix="mend it")
    assert str(caught.value) == f"{file}:4: task.names: is wrong; mend it"
    with pytest.raises(TaskError, match=rf"{file}:3: task\.validation_rows: too many"), at_line(file, lines):
        raise TaskError("too many", where="task.validation_rows")
    with pytest.raises(HpcjfError) as kept, at_line(file, lines):
        raise HpcjfError("lost", where="/data/rows.json")
    assert str(kept.value) == "/data/rows.json: lost"


def test_resolving_changes_no_file(resolve: Resolve, tmp_path: Path) -> None:
    resolve()
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {
        "study.yaml",
        *(f"models/{m}/{f}" for m in ("small", "large") for f in ("config.json", "model.safetensors")),
    }
    assert json.loads((tmp_path / "models/small/config.json").read_text()) == {}
