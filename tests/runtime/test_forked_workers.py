"""From where workers load Spark's own modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinshore.runtime.forked_workers import path_without_archives


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Packages as pip installs them."""
    for name in ("pyspark/python/lib", "py4j"):
        (tmp_path / "site" / name).mkdir(parents=True)
    (tmp_path / "site" / "pyspark" / "daemon.py").touch()
    return tmp_path / "site"


def as_spark_says(home: Path) -> list[str]:
    return [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]


def test_an_installed_package_is_loaded_as_files_and_not_out_of_an_archive(site: Path) -> None:
    path = ["", *as_spark_says(site / "pyspark"), "/our/src", str(site)]
    assert path_without_archives(path) == ["", "/our/src", str(site)]


def test_where_the_path_does_not_name_the_packages_they_come_last(site: Path) -> None:
    assert path_without_archives(["", *as_spark_says(site / "pyspark"), "/our/src"]) == ["", "/our/src", str(site)]


def test_a_spark_that_is_no_package_keeps_its_archives(tmp_path: Path) -> None:
    path = ["", *as_spark_says(tmp_path / "spark"), "/our/src"]
    assert path_without_archives(path) == path


def test_a_package_without_py4j_beside_it_keeps_its_archives(site: Path) -> None:
    (site / "py4j").rmdir()
    path = ["", *as_spark_says(site / "pyspark")]
    assert path_without_archives(path) == path
