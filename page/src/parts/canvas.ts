// A canvas that is drawn in the pixels of the screen, and anew when its size or what it needs changes.

import { useEffect, useRef } from "preact/hooks";

export function useCanvas(draw: (ctx: CanvasRenderingContext2D, width: number, height: number) => void, needs: unknown[]) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const node = canvas.current;
    if (!node) return;
    const paint = () => {
      const scale = devicePixelRatio || 1;
      node.width = node.clientWidth * scale; node.height = node.clientHeight * scale;
      const ctx = node.getContext("2d")!;
      ctx.scale(scale, scale);
      ctx.font = `11px ${getComputedStyle(node).fontFamily}`;
      draw(ctx, node.clientWidth, node.clientHeight);
    };
    paint();
    const sized = new ResizeObserver(paint);
    sized.observe(node);
    return () => sized.disconnect();
  }, needs);
  return canvas;
}
