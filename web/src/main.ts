import './app.css'
import { mount } from 'svelte'
import App from './App.svelte'
import { page } from './lib/page.svelte'

page.paint()
const target = document.getElementById('app')
if (target) mount(App, { target })
