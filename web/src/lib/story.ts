/** What became of a call, step by step, told from the call itself. */
import { escape, escapeJson } from './escape'
import { compact, of } from './json'
import type { Call, HoldBrief, Outcome } from './types'

export type Tone = 'plain' | 'good' | 'bad' | 'warn' | 'accent'

/** One step, safe to show. `words` are somebody's own and not checked. */
export type Step = { at?: string; tone: Tone; says: string; words?: string }

/** The steps of a call, oldest first. */
export function story(call: Call): Step[] {
  return [
    { at: call.created_at, tone: 'plain', says: `Submitted, and the policy says ${call.verdict.effect}: ${rules(call)}` },
    ...call.holds.flatMap(ofHold),
    ...(call.grant === null ? [] : [{ tone: 'good' as const, says: `Covered by ${call.grant}` }]),
    ...(call.response == null ? [] : [{ tone: 'accent' as const, says: 'A person answered instead', words: shown(call.response) }]),
    ...(call.outcome === null ? [] : [ofOutcome(call.outcome)]),
    ...(call.refusal === null ? [] : [refused(call)]),
    ...(call.state === 'in_doubt' ? [{ tone: 'warn' as const, says: 'Nobody knows whether it happened' }] : []),
    ...(call.resolution === null ? [] : [resolved(call.resolution)]),
  ]
}

function rules(call: Call): string {
  return call.verdict.because.map(({ rule }) => escape(rule)).join(', ') || 'no rule'
}

function ofHold(hold: HoldBrief): Step[] {
  const asked: Step = { at: hold.opened_at, tone: 'accent', says: hold.in_run ? 'The running tool asked to go on' : 'People were asked' }
  const words = { approve: 'approved', deny: 'denied', respond: 'answered' }
  const decided = hold.decisions.map((decision): Step => ({
    at: decision.at,
    tone: decision.answer === 'deny' ? 'bad' : 'good',
    says: `${escape(decision.by)} ${words[decision.answer]} via ${escape(decision.channel)}`,
    words: safe(decision.reason),
  }))
  const silent = ['released', 'expired', 'cancelled', 'superseded'].includes(hold.state)
  return [asked, ...decided, ...(silent ? [{ tone: 'warn' as const, says: `The hold was ${hold.state}` }] : [])]
}

function ofOutcome(outcome: Outcome): Step {
  if (outcome.outcome === 'succeeded') return { tone: 'good', says: 'It ran', words: shown(outcome.output) }
  if (outcome.outcome === 'failed') return { tone: 'bad', says: 'It ran and failed', words: safe(outcome.error) }
  return { tone: 'warn', says: 'It may have been applied', words: safe(outcome.why) }
}

function refused({ refusal }: Call): Step {
  return { tone: 'bad', says: `Refused: ${refusal?.kind.replaceAll('_', ' ')}${refusal?.by ? ` by ${escape(refusal.by)}` : ''}`, words: safe(refusal?.reason) }
}

function resolved(resolution: NonNullable<Call['resolution']>): Step {
  return { at: resolution.at, tone: 'good', says: `${escape(resolution.by)} settled it as ${resolution.as.replaceAll('_', ' ')}`, words: safe(resolution.reason) }
}

function shown(value: unknown): string {
  return escapeJson(compact(of(value)))
}

function safe(text: string | null | undefined): string | undefined {
  return text == null ? undefined : escape(text)
}
