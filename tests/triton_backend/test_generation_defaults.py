"""The checkpoint's own defaults: read as transformers reads them, or refused at load."""

from dataclasses import asdict

import pytest
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    DiffusionGemmaGenerationConfig,
)

from build_engine.errors import EngineError
from tests.triton_backend.asking import CHECKPOINT
from triton_backend.generation_defaults import GenerationDefaults, load_defaults


def test_defaults_are_those_of_transformers_where_the_checkpoint_is_silent(tmp_path):
    theirs = DiffusionGemmaGenerationConfig._get_default_generation_params()
    theirs["entropy_bound"] = theirs.pop("sampler_config").entropy_bound
    assert asdict(load_defaults(tmp_path)) == theirs


def test_defaults_are_read_from_the_checkpoint():
    found = load_defaults(CHECKPOINT)
    assert found == GenerationDefaults(max_new_tokens=64)


def defaults_of(directory, text):
    (directory / "generation_config.json").write_text(text)
    return load_defaults(directory)


def test_a_value_of_null_is_silence_and_numbers_get_their_kind(tmp_path):
    found = defaults_of(tmp_path, '{"t_min": 0, "max_new_tokens": null, "sampler_config": null}')
    assert found == GenerationDefaults(t_min=0.0)
    assert isinstance(found.t_min, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"sampler_config": {"_cls_name": "Other"}}', "sampler Other is not supported"),
        ('{"t_max": "hot"}', "could not convert"),
        ('{"max_new_tokens": 0}', "max_new_tokens is 0, allowed are values from 1"),
        ('{"max_denoising_steps": Infinity}', "cannot convert float infinity"),
        ('{"t_max": NaN}', "t_max is nan, allowed are values from 0.01 to 10"),
        ('{"sampler_config": {"entropy_bound": -1}}', "entropy_bound is -1.0, allowed are"),
    ],
)
def test_a_checkpoint_that_asks_for_what_cannot_be_is_refused_at_load(tmp_path, text, message):
    with pytest.raises(EngineError, match=message):
        defaults_of(tmp_path, text)
