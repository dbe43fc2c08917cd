import { defineConfig } from "vite";

// The server writes <base href> into the html, so that every address is relative and any path prefix works.
export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: "../src/relive/server/static",
    emptyOutDir: true,
    assetsDir: "static",
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    target: "es2021",
  },
});
