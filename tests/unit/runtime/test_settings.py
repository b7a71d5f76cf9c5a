"""Settings are strict about names, frozen, and survive the way through an environment."""

import pytest
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import ServiceSettings, environment


class LampSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HOTLINE_LAMP_")

    brightness_ratio: float = Field(0.5, ge=0, le=1)
    friends: dict[str, str] = Field({}, max_length=3)


def test_what_is_written_as_environment_is_read_back(monkeypatch):
    values = {"name": "lamp-0", "friends": {"a": "unix:/a"}, "brightness_ratio": 0.25}
    for key, value in environment("HOTLINE_LAMP_", values).items():
        monkeypatch.setenv(key, value)
    settings = LampSettings.read()
    assert settings.name == "lamp-0"
    assert settings.friends == {"a": "unix:/a"}
    assert settings.brightness_ratio == 0.25


def test_a_misspelt_variable_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("HOTLINE_LAMP_BRIGHTNES_RATIO", "1")
    with pytest.raises(ValidationError, match="HOTLINE_LAMP_BRIGHTNES_RATIO"):
        LampSettings.read()


def test_another_services_variables_are_nobodys_business(monkeypatch):
    monkeypatch.setenv("HOTLINE_OTHER_THING", "1")
    assert LampSettings.read().brightness_ratio == 0.5


def test_a_value_out_of_range_is_refused(monkeypatch):
    monkeypatch.setenv("HOTLINE_LAMP_BRIGHTNESS_RATIO", "1.5")
    with pytest.raises(ValidationError, match="brightness_ratio"):
        LampSettings.read()


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        LampSettings().brightness_ratio = 1.0  # type: ignore[misc]


class ShadeSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HOTLINE_SHADE_")

    width_cm: int | None = 40


def test_none_is_null_in_the_environment_and_replaces_a_default(monkeypatch):
    variables = environment("HOTLINE_SHADE_", {"width_cm": None})
    assert variables == {"HOTLINE_SHADE_WIDTH_CM": "null"}
    monkeypatch.setenv("HOTLINE_SHADE_WIDTH_CM", variables["HOTLINE_SHADE_WIDTH_CM"])
    assert ShadeSettings.read().width_cm is None
