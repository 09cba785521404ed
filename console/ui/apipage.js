// The interface, drawn from its own description.

import { h } from '../lib/dom.js';
import { route, to } from '../lib/route.js';
import { card } from './bits.js';

/** @typedef {Record<string, any>} Schema */

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

/** @param {Schema | null} description */
export function apiPage(description) {
  if (!description?.paths) return null;
  const open = route.get().params.op ?? '';
  /** @type {Map<string, import('../lib/dom.js').VNode[]>} */
  const groups = new Map((description.tags ?? []).map((/** @type {Schema} */ tag) => [tag.name, []]));
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const method of METHODS) {
      const operation = /** @type {Schema} */ (methods)[method];
      if (!operation) continue;
      const tag = operation.tags?.[0] ?? 'other';
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag)?.push(one(description, method, path, operation, open));
    }
  }
  const said = (/** @type {string} */ name) => (description.tags ?? []).find((/** @type {Schema} */ tag) => tag.name === name)?.description;
  return [
    h('p', { class: 'muted' }, description.info?.description ?? ''),
    [...groups].filter(([, list]) => list.length > 0).map(([name, list]) => card(said(name) ?? name, h('div', { class: 'operations' }, list))),
  ];
}

/** @param {Schema} all @param {string} method @param {string} path @param {Schema} operation @param {string} open */
function one(all, method, path, operation, open) {
  const name = `${method} ${path}`;
  const isOpen = name === open;
  return h(
    'div',
    { class: 'operation', key: name },
    h('a', { class: 'operation-head', href: to('server', { tab: 'api', op: isOpen ? undefined : name }), 'aria-expanded': String(isOpen) }, h('span', { class: `method method-${method}` }, method.toUpperCase()), h('code', null, path), h('span', { class: 'muted' }, operation.summary ?? '')),
    isOpen ? details(all, operation) : null,
  );
}

/** @param {Schema} all @param {Schema} operation */
function details(all, operation) {
  const body = operation.requestBody?.content?.['application/json']?.schema;
  const answers = Object.entries(operation.responses ?? {});
  return h(
    'div',
    { class: 'operation-body' },
    operation.parameters?.length ? [h('h3', null, 'Parameters'), fields(operation.parameters.map((/** @type {Schema} */ parameter) => ({ name: parameter.name, type: `${typeOf(all, parameter.schema)}, in ${parameter.in}`, isNeeded: parameter.required, said: parameter.description })))] : null,
    body ? [h('h3', null, 'Body'), fields(properties(all, body))] : null,
    h('h3', null, 'Answers'),
    answers.map(([status, answer]) => {
      const content = /** @type {Schema} */ (Object.values(/** @type {Schema} */ (answer).content ?? {})[0])?.schema;
      const inside = content && Number(status) < 300 ? properties(all, content) : [];
      return h('div', { class: 'answer', key: status }, h('span', { class: `badge ${Number(status) < 300 ? 'good' : ''}` }, status), ` ${/** @type {Schema} */ (answer).description ?? ''}`, inside.length > 0 ? fields(inside) : null);
    }),
  );
}

/** @param {{ name: string, type: string, isNeeded: boolean, said?: string }[]} list */
function fields(list) {
  return h('table', { class: 'plain fields' }, h('tbody', null, list.map((field) => h('tr', { key: field.name }, h('td', null, h('code', null, field.name), field.isNeeded ? h('span', { class: 'needed', title: 'needed' }, ' *') : null), h('td', { class: 'muted' }, field.type), h('td', null, field.said ?? '')))));
}

/** @param {Schema} all @param {Schema} schema */
function properties(all, schema) {
  const whole = resolved(all, schema);
  const needed = new Set(whole.required ?? []);
  return Object.entries(whole.properties ?? {}).map(([name, part]) => {
    const property = /** @type {Schema} */ (part);
    return { name, type: typeOf(all, property), isNeeded: needed.has(name), said: property.description ?? resolved(all, property).description };
  });
}

/** @param {Schema} all @param {Schema | undefined} schema @returns {Schema} */
function resolved(all, schema) {
  if (!schema) return {};
  const choice = (schema.oneOf ?? schema.anyOf)?.find((/** @type {Schema} */ one) => one.type !== 'null');
  if (choice) return resolved(all, choice);
  const name = /^#\/components\/schemas\/(.+)$/.exec(schema.$ref ?? '')?.[1];
  return name ? (all.components?.schemas?.[name] ?? {}) : schema;
}

/** @param {Schema} all @param {Schema | undefined} schema @returns {string} */
function typeOf(all, schema) {
  if (!schema) return '';
  const whole = resolved(all, schema);
  const names = [whole.type].flat().filter((name) => name && name !== 'null');
  const isOptional = [schema.type].flat().includes('null') || (schema.oneOf ?? []).some((/** @type {Schema} */ one) => one.type === 'null');
  const text = whole.enum ? whole.enum.join(' | ') : whole.type === 'array' ? `list of ${typeOf(all, whole.items)}` : names.join(' or ') || 'object';
  return isOptional ? `${text}, or null` : text;
}
