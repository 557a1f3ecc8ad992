import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from hpcjf.errors import TaskError
from hpcjf.tasks import Row, render

SYMBOLS = ["<pad>", "<s>", "</s>", "<user>", "<bot>", *"0123456789+="]
ROW = Row.of("07+85=", ("092",), "arithmetic")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<user>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}"
)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "additional_special_tokens": SYMBOLS[3:5]}


def tokenizer(wrap=None, template=None):
    inner = Tokenizer(models.WordLevel({symbol: i for i, symbol in enumerate(SYMBOLS)}, SYMBOLS[0]))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if wrap:
        inner.post_processor = processors.TemplateProcessing(single=wrap, special_tokens=[("<s>", 1), ("</s>", 2)])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, **SPECIAL)
    made.chat_template = template
    return made


def ids(text):
    return [SYMBOLS.index(symbol) for symbol in text]


@pytest.mark.parametrize(
    ("wrap", "template", "before", "after"),
    [
        (None, None, [], []),
        ("<s> $A", None, [1], []),
        ("<s> $A </s>", None, [1], []),
        (None, TEMPLATE, [1, 3], [4]),
        ("<s> $A", TEMPLATE, [1, 3], [4]),
        ("<s> $A </s>", TEMPLATE, [1, 3], [4]),
    ],
)
def test_special_tokens_come_once(wrap, template, before, after):
    assert render(ROW, tokenizer(wrap, template)) == [*before, *ids("07+85="), *after]


def test_bos_in_the_text_is_not_doubled():
    assert render(Row.of("<s>1+2=", ("3",), "mlperf"), tokenizer("<s> $A")) == [1, *ids("1+2=")]


def test_a_template_may_be_left_aside_or_demanded():
    assert render(ROW, tokenizer("<s> $A", TEMPLATE), "plain") == [1, *ids("07+85=")]
    assert render(ROW, tokenizer("<s> $A", TEMPLATE), "chat") == render(ROW, tokenizer("<s> $A", TEMPLATE))
    with pytest.raises(TaskError, match="no chat template"):
        render(ROW, tokenizer("<s> $A"), "chat")


def test_a_template_that_refuses_a_user_s_turn_is_named():
    with pytest.raises(TaskError, match=r"refuses a user's turn \(TemplateError: system first\)"):
        render(ROW, tokenizer(None, "{{ raise_exception('system first') }}"))
