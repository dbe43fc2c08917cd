import { execFileSync } from "node:child_process";
import { describe, expect, it, vi } from "vitest";
import { bytesText, cellText, durationText, exact, grouped, numberOf, short, tickText } from "../src/pure/format";

vi.setConfig({ testTimeout: 60_000 }); // many thousands of numbers, on a machine that may be busy

// Python writes the cases, so that its own formatting is what we are held to.
const PYTHON = `
import json, math, random, struct
rng = random.Random(7)
def draw():
    kind = rng.randrange(6)
    if kind == 0: return struct.unpack("<d", rng.randbytes(8))[0]
    if kind == 1: return rng.uniform(-1, 1) * 10 ** rng.randint(-12, 20)
    if kind == 2: return float(rng.randint(-10**rng.randint(1, 18), 10**rng.randint(1, 18)))
    if kind == 3: return (rng.randint(0, 10**7) + 0.5) * rng.choice([1, -1])
    if kind == 4: return rng.randint(0, 10**7) / 2 ** rng.randint(0, 12)
    return round(rng.uniform(0, 100000), rng.randint(0, 6))
values = [0.0, -0.0, 12000.4, 999999.5, 100000.5, 123456.5, 0.0001, 0.00001, 1e16, 1e15, 5e-324, 1.7976931348623157e308, 2.5]
while len(values) < 20000:
    value = draw()
    if math.isfinite(value): values.append(value)
print(json.dumps([[repr(v), format(v, ".6g"), format(v, ".3g"), repr(v).removesuffix(".0")] for v in values]))
`;
const cases = JSON.parse(execFileSync(process.env.PYTHON ?? "python3", ["-c", PYTHON], { maxBuffer: 1 << 26 }).toString()) as [string, string, string, string][];

describe("numbers are written as Python writes them", () => {
  it("in six digits", () => { for (const [value, six] of cases) expect(short(Number(value)), value).toBe(six); });
  it("in three digits", () => { for (const [value, , three] of cases) expect(short(Number(value), 3), value).toBe(three); });
  it("in all digits", () => { for (const [value, , , all] of cases) expect(exact(Number(value)), value).toBe(all); });
  it("and no other number has the same digits", () => { for (const [value] of cases) expect(Number(exact(Number(value)))).toBe(Number(value)); });
});

describe("cells", () => {
  it("keep what JSON can't carry", () => {
    expect(cellText("NaN")).toBe("nan");
    expect(cellText("-Infinity")).toBe("-inf");
    expect(cellText("$int:1152921504606846977")).toBe("1,152,921,504,606,846,977");
    expect(numberOf("NaN")).toBeNaN();
    expect(numberOf("NaN of us")).toBeNull();
  });
  it("have the numbers of the issue", () => {
    expect(cellText(12000.4)).toBe("12,000.4");
    expect(cellText(25_275_000)).toBe("25,275,000");
    expect(cellText(null)).toBe("");
    expect(cellText(true)).toBe("true");
    expect(grouped("-1234567.25")).toBe("-1,234,567.25");
    expect(grouped("1.5e+20")).toBe("1.5e+20");
  });
  it("have units", () => {
    expect(bytesText(0)).toBe("0 B");
    expect(bytesText(25_275_000)).toBe("25.3 MB");
    expect(durationText(0.25)).toBe("250 ms");
    expect(durationText(75)).toBe("1 min 15 s");
    expect(tickText(275_000_000)).toBe("275M");
    expect(tickText(0.001)).toBe("0.001");
  });
});
