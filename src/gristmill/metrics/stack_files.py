"""Configuration of Prometheus and Grafana for runs of this machine, as files in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from gristmill.errors import PlanError
from gristmill.metrics.discovery import PATTERN, remove_stale, write_whole

SCRAPE_EVERY = "2s"
DASHBOARD_UID = "gristmill"
_GLOB = set("*?[]\\")


@dataclass(frozen=True, slots=True)
class StackFiles:
    """Where the files of Prometheus and Grafana are."""

    folder: Path
    runs: Path
    """The folder in which runs leave their addresses."""
    prometheus_port: int = 9090
    grafana_port: int = 3000

    @property
    def prometheus(self) -> Path:
        return self.folder / "prometheus.yml"

    @property
    def rules(self) -> Path:
        return self.folder / "gristmill-rules.yml"

    @property
    def grafana(self) -> Path:
        return self.folder / "grafana" / "grafana.ini"

    @property
    def provisioning(self) -> Path:
        return self.folder / "grafana" / "provisioning"

    @property
    def dashboard(self) -> Path:
        return self.folder / "grafana" / "dashboards" / "gristmill.json"

    def write(self) -> list[Path]:
        """Write all files, and remove the addresses of runs that were killed. Return the files.

        Raise `PlanError` if a folder cannot be written to.
        """
        if bad := _GLOB & set(str(self.runs)):
            raise PlanError(
                f"{self.runs}: Prometheus finds runs by a pattern, so the name of their folder cannot contain "
                f"{' '.join(sorted(bad))}. Choose another folder with --runs."
            )
        texts = self._texts()
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            remove_stale(self.runs)
            for path, text in texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, text)
        except OSError as error:
            where = error.filename or self.folder
            raise PlanError(
                f"{where} cannot be written to: {error.strerror}. Choose another folder for the files of the servers."
            ) from None
        return list(texts)

    def _texts(self) -> dict[Path, str]:
        return {
            self.prometheus: _yaml(self._prometheus()),
            self.rules: shipped("rules.yml"),
            self.provisioning / "datasources" / "gristmill.yml": _yaml(self._datasource()),
            self.provisioning / "dashboards" / "gristmill.yml": _yaml(self._dashboards()),
            self.dashboard: shipped("dashboard.json"),
            self.grafana: self._grafana(),
        }

    def _prometheus(self) -> dict[str, Any]:
        return {
            "global": {"scrape_interval": SCRAPE_EVERY, "evaluation_interval": "5s"},
            "rule_files": [self.rules.name],
            "scrape_configs": [
                {
                    "job_name": "gristmill",
                    "file_sd_configs": [{"files": [str(self.runs / PATTERN)], "refresh_interval": "5s"}],
                }
            ],
        }

    def _datasource(self) -> dict[str, Any]:
        source = {
            "name": "Prometheus of gristmill",
            "uid": "gristmill-prometheus",
            "type": "prometheus",
            "access": "proxy",
            "url": f"http://127.0.0.1:{self.prometheus_port}",
            "isDefault": True,
            "jsonData": {"timeInterval": SCRAPE_EVERY},
        }
        return {"apiVersion": 1, "datasources": [source]}

    def _dashboards(self) -> dict[str, Any]:
        provider = {
            "name": "gristmill",
            "type": "file",
            "allowUiUpdates": True,
            "options": {"path": str(self.dashboard.parent)},
        }
        return {"apiVersion": 1, "providers": [provider]}

    def _grafana(self) -> str:
        """Return a configuration with the server on loopback, which anyone on this machine may look at."""
        data = self.folder / "data" / "grafana"
        return (
            f"[paths]\ndata = {data}\nlogs = {data / 'logs'}\nplugins = {data / 'plugins'}\n"
            f"provisioning = {self.provisioning}\n\n"
            f"[server]\nhttp_addr = 127.0.0.1\nhttp_port = {self.grafana_port}\n\n"
            "[auth.anonymous]\nenabled = true\norg_role = Viewer\n\n"
            "[analytics]\nreporting_enabled = false\ncheck_for_updates = false\n\n"
            f"[dashboards]\ndefault_home_dashboard_path = {self.dashboard}\n"
        )


def shipped(name: str) -> str:
    """Return a file that comes with gristmill."""
    return (files("gristmill.metrics") / "stack" / name).read_text(encoding="utf-8")


def _yaml(value: dict[str, Any]) -> str:
    return "# Written by 'gristmill metrics': changes are lost.\n" + yaml.safe_dump(value, sort_keys=False)
