import { describe, expect, it } from "vitest";
import { band, before, categoryCorrelation, extent, nearest, rankCorrelation, roomy, smooth, valueAt } from "../src/pure/curves";
import { isRanking, likelyArgs, likelyMetrics } from "../src/pure/likely";
import { csvField, rowsToCsv, toCsv } from "../src/pure/files";
import { fromList, fromRange, parse, toList, toRange, write } from "../src/pure/params";
import { complete, isInText, quoted, wordAt } from "../src/pure/where";
import { assignColors, PALETTE } from "../src/pure/colors";
import { pairs } from "../src/parts/diff";
import { allSteps, stepIndex, valueFor } from "../src/pure/steps";
import { lastCell, plainForm } from "../src/pure/format";

const f = (...values: number[]) => Float64Array.from(values);

describe("curves", () => {
  it("are smoothed without bias, and gaps stay", () => {
    expect([...smooth(f(1, 1, 1), 0.9)].map((x) => Number(x.toFixed(12)))).toEqual([1, 1, 1]);
    const found = smooth(f(0, NaN, 1), 0.5);
    expect(found[0]).toBe(0);
    expect(found[1]).toBeNaN();
    expect(found[2]).toBeCloseTo(2 / 3);
    expect(smooth(f(3, 4), 0)).toEqual(f(3, 4));
  });
  it("are read at any place", () => {
    const x = f(0, 10, 20);
    expect([before(x, -1), before(x, 0), before(x, 15), before(x, 99)]).toEqual([-1, 0, 1, 2]);
    expect([nearest(x, -5), nearest(x, 4), nearest(x, 6), nearest(x, 99), nearest(f(), 1)]).toEqual([0, 0, 1, 2, -1]);
    expect(valueAt(x, f(0, 1, 3), 15)).toBe(2);
    expect(valueAt(x, f(0, 1, 3), 20)).toBe(3);
    expect(valueAt(x, f(0, 1, 3), 21)).toBeNaN();
  });
  it("make bands", () => {
    const found = band([{ x: f(0, 1), y: f(0, 2) }, { x: f(0, 1), y: f(2, 2) }], "std");
    expect([...found.mean]).toEqual([1, 2]);
    expect(found.high[0]! - 1).toBeCloseTo(Math.SQRT2);
    expect([...band([{ x: f(0), y: f(1) }, { x: f(0), y: f(5) }], "range").low]).toEqual([1]);
    expect(band([{ x: Float64Array.from({ length: 5000 }, (_, i) => i), y: new Float64Array(5000) }], "std").x.length).toBe(500);
  });
  it("have an extent with room", () => {
    expect(extent([f(1, NaN, -2, Infinity)], false)).toEqual([-2, 1]);
    expect(extent([f(0, -1)], true)).toBeNull();
    expect(roomy([3, 3], false)[0]).toBeLessThan(3);
    expect(roomy([1, 100], true)[0]).toBeGreaterThan(0);
  });
  it("are correlated by rank", () => {
    expect(rankCorrelation([1, 2, 3, 4], [1, 10, 100, 1000])).toBeCloseTo(1);
    expect(rankCorrelation([1, 2, 3], [3, 2, 1])).toBeCloseTo(-1);
    expect(rankCorrelation([1, 1, 1], [1, 2, 3])).toBeNaN();
    expect(categoryCorrelation(["a", "a", "b", "b"], [1, 2, 10, 11])).toBeGreaterThan(0.8);
  });
});

describe("addresses", () => {
  it("keep every list and range", () => {
    for (const items of [[], ["a"], ["a,b", "c\\d", ""], ["ü", "x y", "<b>"]]) {
      if (items.length) expect(toList(fromList(items))).toEqual(items);
      expect(toList(parse(write({ runs: fromList(items) })).runs)).toEqual(items);
    }
    expect(toRange(fromRange([0.1, 25000.5]))).toEqual([0.1, 25000.5]);
    expect(toRange("3..1")).toBeNull();
    expect(toRange("x")).toBeNull();
    expect(write({ b: "1", a: "", c: "x/y:z" })).toBe("?b=1&c=x/y:z");
  });
});

describe("the filter", () => {
  const columns = [{ name: "lr", kind: "arg", runs: 3 }, { name: "loss", kind: "metric", runs: 3 }, { name: "val/loss", kind: "metric", runs: 3 }];
  const texts = (text: string) => complete(text, text.length, columns).map((one) => one.text);
  it("completes columns, operators and joiners where each may stand", () => {
    expect(texts("l")).toEqual(["lr", "loss", "val/loss"]);
    expect(texts("lr < 0.1 and val")).toEqual(["val/loss"]);
    expect(texts("lr ")).toContain("<=");
    expect(texts("lr < 0.1 ")).toEqual(["and", "or"]);
    expect(texts("model = 'l")).toEqual([]);
  });
  it("quotes names that SQL would misread", () => {
    expect(quoted("lr")).toBe("lr");
    expect(quoted('a"b')).toBe('"a""b"');
    expect(complete("val", 3, columns)[0]!.insert).toBe('"val/loss" ');
    expect(wordAt("lr < val/l", 10)).toEqual({ word: "val/l", start: 5 });
    expect(isInText("a = 'x", 6)).toBe(true);
  });
});

describe("likely columns", () => {
  const metric = (name: string, is_number = true) => ({ name, kind: "metric", runs: 3, is_number });
  const arg = (name: string, values: number, runs = 30) => ({ name, kind: "arg", runs, values });
  it("rank runs: held-out scores first, texts never", () => {
    expect(likelyMetrics([metric("caption/score", false), metric("train/loss"), metric("lr"), metric("train/acc"), metric("val/loss"), metric("val/acc")])).toEqual(["val/acc", "train/acc", "val/loss", "train/loss", "lr"]);
    expect(isRanking("mapper/count")).toBe(false);
  });
  it("are args that differ", () => {
    expect(likelyArgs([arg("batch", 1), arg("folder", 30), arg("lr", 7), arg("rare", 2, 3), arg("seed", 5)])).toEqual(["lr", "seed", "rare", "folder", "batch"]);
  });
});

describe("files", () => {
  it("writes tables with all digits and no formulas", () => {
    expect(rowsToCsv(["a,b", "n"], [["=1+1", 0.1 + 0.2], [null, true], ["x\"y", [1, 2]]])).toBe("\"a,b\",n\n'=1+1,0.30000000000000004\n,true\n\"x\"\"y\",\"[1,2]\"\n");
  });

  it("have one row per x, all digits, and no formulas", () => {
    expect(toCsv("step", [{ label: "=a", x: f(0, 2), y: f(0.1, 0.30000000000000004) }, { label: 'b"c', x: f(1), y: f(5) }])).toBe(`step,'=a,"b""c"\n0,0.1,\n1,,5\n2,0.30000000000000004,\n`);
    expect(csvField("a\nb")).toBe('"a\nb"');
  });
});

describe("colours", () => {
  const runs = Array.from({ length: 25 }, (_, i) => ({ run: `run${i}`, started_us: i }));
  it("stay with a run that was given one", () => { expect(assignColors(runs, new Map([["run3", 7]])).get("run3")).toBe(PALETTE[7]); });
  it("are all different for twenty runs, and stay when newer ones come or the order changes", () => {
    const twenty = assignColors(runs.slice(0, 20), new Map());
    expect(new Set(twenty.values()).size).toBe(20);
    expect(new Set([...assignColors(runs.slice(0, 10), new Map()).values()])).toEqual(new Set(PALETTE.slice(0, 10)));
    const all = assignColors([...runs].reverse(), new Map());
    for (const [run, color] of twenty) expect(all.get(run)).toBe(color);
  });
});

describe("differences", () => {
  it("stand beside each other", () => {
    const found = pairs({ old_start: 1, new_start: 1, lines: [{ kind: " ", text: "a" }, { kind: "-", text: "b" }, { kind: "+", text: "c" }, { kind: "+", text: "d" }] });
    expect(found.map((pair) => [pair.left?.n, pair.right?.text])).toEqual([[1, "a"], [2, "c"], [undefined, "d"]]);
  });
});

describe("steps of images and texts", () => {
  const few = [{ n: 0, x: 0 }, { n: 1, x: 10 }, { n: 2, x: 20 }];
  it("are those of all runs, once", () => {
    expect(allSteps([few, [{ n: 0, x: 5 }, { n: 1, x: 10 }, { n: 2, x: null }]])).toEqual([0, 2, 5, 10, 20]);
  });
  it("have the last value at or before a place", () => {
    expect(valueFor(few, 15)?.n).toBe(1);
    expect(valueFor(few, null)?.n).toBe(2);
    expect(valueFor(few, -1)?.n).toBe(0);
    expect(valueFor([], 3)).toBeUndefined();
    expect([stepIndex([0, 10, 20], null), stepIndex([0, 10, 20], 19), stepIndex([0, 10, 20], -5)]).toEqual([2, 1, 0]);
  });
});

describe("stored forms", () => {
  it("are shown without tags", () => {
    expect(plainForm({ $array: { dtype: "<f4", shape: [64, 32], chunk: "00" } })).toBe("array 64 × 32");
    expect(plainForm({ $tuple: [{ $np: ["float32", 1.5] }, { $float: "nan" }] })).toEqual([1.5, "NaN"]);
    expect(plainForm({ a: { $text: { head: "long", chunk: "0" } } })).toEqual({ a: "long…" });
    expect(lastCell('{"$image":{"shape":[8,8,3]}}')).toBe("image 8 × 8 × 3");
    expect(lastCell('"a text"')).toBe("a text");
    expect(lastCell("not JSON")).toBe("not JSON");
    expect(lastCell(0.5)).toBe(0.5);
  });
});
