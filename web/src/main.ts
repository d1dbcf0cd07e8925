import './app.css'
import { mount } from 'svelte'
import App from './App.svelte'
import { page } from './lib/page.svelte'

page.paint()
const target = document.getElementById('app')
// What stood there until now only said that something comes.
target?.replaceChildren()
if (target) mount(App, { target })
