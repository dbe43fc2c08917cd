// Lines and areas on a canvas, in short parts: the time of a rasterizer grows with the square of the points of one path.

const PART = 32; // points of one path
export const THIN = 1; // device pixels: a wider line costs a rasterizer without a GPU seventy times as much

export interface Pen { color: string; width: number; alpha: number; dash: number[] }
/** Where the i-th point lies on the canvas; false where the line is interrupted. */
export type Placed = (i: number, into: Point) => boolean;
export interface Point { x: number; y: number }

/** Draws a line from point to point; a single point becomes a dot. */
export function strokeLine(ctx: CanvasRenderingContext2D, first: number, last: number, place: Placed, pen: Pen): void {
  ctx.globalAlpha = pen.alpha; ctx.strokeStyle = pen.color; ctx.lineWidth = pen.width; ctx.setLineDash(pen.dash);
  // Where two parts meet, a translucent thick line would be seen twice.
  const most = pen.alpha < 1 && pen.width > THIN ? Infinity : PART;
  const at: Point = { x: 0, y: 0 };
  let isDown = false; let count = 0; let inPath = 0; let before = { x: 0, y: 0 }; let length = 0;
  ctx.lineDashOffset = 0;
  ctx.beginPath();
  for (let i = first; i < last; i++) {
    if (!place(i, at)) { isDown = false; continue; }
    if (isDown) ctx.lineTo(at.x, at.y); else ctx.moveTo(at.x, at.y);
    if (isDown && pen.dash.length) length += Math.hypot(at.x - before.x, at.y - before.y);
    isDown = true; count += 1; inPath += 1; before.x = at.x; before.y = at.y;
    if (inPath >= most) { ctx.stroke(); ctx.beginPath(); ctx.moveTo(at.x, at.y); ctx.lineDashOffset = length; inPath = 0; }
  }
  ctx.stroke();
  if (count === 1) { ctx.fillStyle = pen.color; ctx.beginPath(); ctx.arc(before.x, before.y, pen.width * 1.5, 0, 7); ctx.fill(); }
  ctx.globalAlpha = 1; ctx.setLineDash([]); ctx.lineDashOffset = 0;
}

/** Fills the area between two lines. */
export function fillBetween(ctx: CanvasRenderingContext2D, first: number, last: number, low: Placed, high: Placed, color: string, alpha: number): void {
  ctx.globalAlpha = alpha; ctx.fillStyle = color;
  const at: Point = { x: 0, y: 0 };
  for (let from = first; from < last - 1; from += PART) {
    const to = Math.min(from + PART, last - 1);
    ctx.beginPath();
    for (let i = from; i <= to; i++) if (high(i, at)) ctx.lineTo(at.x, at.y);
    for (let i = to; i >= from; i--) if (low(i, at)) ctx.lineTo(at.x, at.y);
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}
