// The picture of the curves while the window moves: shifted or stretched, so that every frame is quick; drawn anew at rest.

export interface View { from: number; span: number; left: number; top: number; width: number; height: number } // x as the scale has it: its logarithm on a log axis
/** Draws what lies between two places of the canvas, for a view. */
export type Paint = (ctx: CanvasRenderingContext2D, view: View, fromPixel: number, toPixel: number) => void;

const STRIP = 4; // pixels beside a strip that are drawn with it: lines are wide

export class MovingLayer {
  private canvas = document.createElement("canvas");
  private at: View | null = null;

  forget(): void { this.at = null; }

  /** Draws the picture for a window; what came into it is painted, the rest is there already. */
  show(onto: CanvasRenderingContext2D, view: View, paint: Paint): void {
    const ctx = this.canvas.getContext("2d")!;
    const old = this.at;
    const isFit = old !== null && old.width === view.width && old.height === view.height && old.left === view.left && old.top === view.top;
    if (!isFit) this.renew(ctx, view, paint);
    else if (Math.abs(old.span / view.span - 1) < 1e-9) this.shift(ctx, old, view, paint);
    const { from, span } = this.at!;
    const scale = span / view.span;
    onto.drawImage(this.canvas, view.left + ((from - view.from) / view.span) * view.width, view.top, view.width * scale, view.height);
  }

  private renew(ctx: CanvasRenderingContext2D, view: View, paint: Paint): void {
    this.canvas.width = view.width; this.canvas.height = view.height;
    this.paint(ctx, view, paint, 0, view.width);
    this.at = { ...view };
  }

  private shift(ctx: CanvasRenderingContext2D, old: View, view: View, paint: Paint): void {
    const by = Math.round(((old.from - view.from) / view.span) * view.width);
    if (!by) return;
    if (Math.abs(by) >= view.width) { this.renew(ctx, view, paint); return; }
    ctx.globalCompositeOperation = "copy";
    ctx.drawImage(this.canvas, by, 0);
    ctx.globalCompositeOperation = "source-over";
    const now = { ...view, from: old.from - (by / view.width) * view.span };
    if (by > 0) this.paint(ctx, now, paint, 0, by); else this.paint(ctx, now, paint, view.width + by, view.width);
    this.at = now;
  }

  private paint(ctx: CanvasRenderingContext2D, view: View, paint: Paint, from: number, to: number): void {
    ctx.save();
    ctx.translate(-view.left, -view.top);
    ctx.beginPath();
    ctx.rect(view.left + from, view.top, to - from, view.height);
    ctx.clip();
    paint(ctx, view, view.left + from - STRIP, view.left + to + STRIP);
    ctx.restore();
  }
}
