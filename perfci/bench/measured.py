"""What one measured process knows of itself, and the report that it leaves of that. Imports no torch by itself."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfci.bench import ledger as reporting
from perfci.bench import probe, rules, telemetry
from perfci.bench.ledger import Device, Ledger
from perfci.model import Control, Telemetry


class MeasuredProcess:
    """Its seed, its ledger, its watch over the device. report: None where nobody asked for one."""

    def __init__(self, *, report: Path | None, seed: int) -> None:
        self.report = report
        self.seed = seed
        self.ledger = Ledger()
        self._recorder: telemetry.Recorder | None = None
        self._rates: Any = None  # gate.Rates, which needs torch
        self._device: Device | None = None

    def start(self) -> None:
        if self.report is not None:
            self._recorder = telemetry.Recorder()
            self._recorder.start()

    def window(self) -> Any:
        """Inside of it the device works for a measurement."""
        return self._recorder.window() if self._recorder is not None else nullcontext()

    def rates(self) -> Any:
        if self._rates is None:
            from perfci.bench import gate  # noqa: PLC0415  needs torch

            self._rates = gate.Rates()
        return self._rates

    def save(self) -> None:
        """What is known by now. Where that cannot be written, `finish` will say so."""
        if self.report is None:
            return
        known = self._rates.measured.get(self._measured_on(), ()) if self._rates is not None else ()
        seen = self._recorder.seen() if self._recorder is not None else Telemetry()
        with suppress(OSError):
            reporting.write(self.ledger.plain(replace(self.device, controls=known, telemetry=seen)), self.report)

    def finish(self) -> None:
        """Raises OSError when the report cannot be written."""
        if self.report is None:
            return
        self.ledger.finished = True
        controls = self._controls()
        seen = self._recorder.stop() if self._recorder is not None else Telemetry()
        reporting.write(self.ledger.plain(replace(self.device, controls=controls, telemetry=seen)), self.report)

    @property
    def device(self) -> Device:
        if self._device is None:
            self._device = Device(
                hardware=probe.hardware(),
                node=probe.node(),
                environment=probe.environment(),
                harness=rules.harness(),
            )
        return self._device

    def _controls(self) -> tuple[Control, ...]:
        """Of the device that names the hardware; none where the suite did not use torch."""
        torch = sys.modules.get("torch")
        if torch is None:
            return ()
        rates = self.rates()
        try:
            return tuple(rates.of(self._measured_on()))
        except RuntimeError:  # torch's own: an illegal access of a step leaves no usable device behind
            return ()

    def _measured_on(self) -> str:
        return "cuda" if probe.gpu_present() and sys.modules["torch"].cuda.is_available() else "cpu"
