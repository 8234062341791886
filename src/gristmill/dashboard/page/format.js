// Numbers as short text, as the terminal shows them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value) {
  if (value < 100000) return whole.format(value);
  for (const unit of ["k", "M", "G", "T"]) {
    value /= 1000;
    if (value < 99.95) return `${value.toFixed(1)}${unit}`;
    if (value < 999.5) return `${value.toFixed(0)}${unit}`;
  }
  return `${value.toFixed(0)}T`;
}

export function full(value) {
  return whole.format(value);
}

export function rate(value) {
  if (value <= 0) return "0";
  if (value < 0.001) return "<0.001";
  if (value < 0.0995) return value.toFixed(3);
  if (value < 9.995) return value.toFixed(2);
  if (value < 99.95) return value.toFixed(1);
  return count(value);
}

export function size(value) {
  if (value < 1000) return `${Math.round(value)} B`;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    value /= 1024;
    if (value < 9.95 && unit !== "kB") return `${value.toFixed(1)} ${unit}`;
    if (value < 999.5) return `${value.toFixed(0)} ${unit}`;
  }
  return `${(value / 1024).toFixed(1)} PB`;
}

const two = (n) => String(n).padStart(2, "0");

export function clock(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  const days = Math.floor(all / 86400);
  const hours = Math.floor(all / 3600) % 24;
  const minutes = Math.floor(all / 60) % 60;
  if (days) return `${days}d ${hours}:${two(minutes)}:${two(all % 60)}`;
  if (hours) return `${hours}:${two(minutes)}:${two(all % 60)}`;
  return `${minutes}:${two(all % 60)}`;
}

export function span(seconds) {
  if (seconds < 0.00995) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  return clock(seconds);
}

export function percent(share) {
  return `${Math.floor(Math.min(Math.max(share, 0), 1) * 100 + 1e-9)} %`;
}

export const plural = (n, word) => `${full(n)} ${word}${n === 1 ? "" : "s"}`;
