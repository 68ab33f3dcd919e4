import { defineConfig } from "vite";

// One script and one style sheet, under fixed names: Python puts them into the page.
export default defineConfig({
  build: {
    outDir: "../horosphere/explorer/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      input: "src/main.ts",
      output: { entryFileNames: "explorer.js", assetFileNames: "explorer.[ext]", format: "iife" },
    },
  },
});
