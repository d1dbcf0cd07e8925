/** @type {import('@sveltejs/vite-plugin-svelte').SvelteConfig} */
export default {
  compilerOptions: {
    runes: true,
    // SECURITY: elements are made one by one, never from markup, so that the page runs under Trusted Types.
    fragments: 'tree',
  },
}
