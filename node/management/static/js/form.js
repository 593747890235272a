/** Forms: labelled fields, and an editor of arguments with types and suggestions. */

import { fill, h, icon } from './dom.js';

/** A labelled control. */
export function field(label, control, hint = null) {
  return h('label.field', null, h('span', null, label), control, hint && h('small', null, hint));
}

/** A text input named `name`. */
export function input(name, props = {}) {
  return h('input', { type: 'text', name, autocomplete: 'off', spellcheck: 'false', ...props });
}

/** A select named `name`; choices: [value, label] or value. */
export function select(name, choices, value = undefined) {
  const element = h('select', { name }, choices.map((choice) => {
    const [own, label] = Array.isArray(choice) ? choice : [choice, choice];
    const option = h('option', { value: own }, label);
    option.defaultSelected = own === value; // what a reset comes back to
    return option;
  }));
  return element;
}

/** A form. `submit(values, form)`: values by name (ticks as booleans); the button is off while it runs. */
export function form(fields, label, submit, props = {}) {
  const go = h('button.button.is-primary', { type: 'submit' }, label);
  const element = h('form.form', props, fields, h('.form-buttons', null, go));
  element.addEventListener('submit', async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await submit(valuesOf(element), element);
    } finally {
      go.disabled = false;
    }
  });
  return element;
}

/** Marks the control of a form that was refused, until it is changed, and goes there. */
export function mark(element, name) {
  const control = element.elements.namedItem(name);
  control.setAttribute('aria-invalid', 'true');
  control.addEventListener('input', () => control.removeAttribute('aria-invalid'), { once: true });
  control.focus();
}

/** The values of a form's named controls. */
export function valuesOf(element) {
  const values = {};
  for (const control of element.elements) {
    if (!control.name) continue;
    if (control.type === 'radio' && !control.checked) continue;
    values[control.name] = control.type === 'checkbox' ? control.checked : control.value;
  }
  return values;
}

const TYPES = [['string', 'String'], ['number', 'Number'], ['boolean', 'Boolean'], ['list', 'List']];

/**
 * Rows of name, value and type, with chips that add known arguments.
 *
 * @param {{chips?: {key: string, label: string, type?: string, value?: string, hint?: string}[], label?: string}} options
 * @returns {{element: HTMLElement, read: () => object, load: (object) => void}} `read` throws a TypeError that says which
 *   value doesn't fit its type
 */
export function argumentsEditor({ chips = [], label = 'Arguments' } = {}) {
  const rows = h('.argument-rows');
  const add = (key = '', value = '', type = 'string') => {
    rows.append(argumentRow(key, value, type));
  };
  const chosen = (chip) => {
    const free = [...rows.children].find((row) => !row.querySelector('[data-part=key]').value);
    free?.remove();
    add(chip.key, chip.value ?? '', chip.type ?? 'string');
    rows.lastChild.querySelector('[data-part=value]').focus();
  };
  const shelf = chips.length ? h('.chips', null, chips.map((chip) => h('button.chip',
    { type: 'button', title: chip.hint ?? chip.key, onclick: () => chosen(chip) }, chip.label))) : null;
  const more = h('button.button.small', { type: 'button', onclick: () => add() }, icon('plus'), 'Add');
  const element = h('fieldset.argument-editor', null, h('legend', null, label), rows, h('.argument-tools', null, more, shelf));
  const load = (table) => {
    fill(rows);
    for (const [key, value] of Object.entries(table ?? {})) add(key, asText(value), typeName(value));
  };
  return { element, read: () => readRows(rows), load };
}

function argumentRow(key, value, type) {
  const kind = select('', TYPES, type);
  kind.setAttribute('aria-label', 'Type');
  const row = h('.argument-row', null,
    h('input', { type: 'text', 'data-part': 'key', placeholder: 'name', 'aria-label': 'Name', value: key, autocomplete: 'off', spellcheck: 'false' }),
    h('span', { 'aria-hidden': 'true' }, '='),
    h('input', { type: 'text', 'data-part': 'value', placeholder: 'value', 'aria-label': 'Value', value, autocomplete: 'off', spellcheck: 'false' }),
    kind,
    h('button.button.small.plain', { type: 'button', title: 'Remove', 'aria-label': 'Remove', onclick: () => row.remove() }, icon('close')));
  kind.dataset.part = 'type';
  return row;
}

function readRows(rows) {
  const table = {};
  for (const row of rows.children) {
    const part = (name) => row.querySelector(`[data-part=${name}]`).value;
    const key = part('key').trim();
    if (!key) continue;
    table[key] = typed(part('value'), part('type'), key);
  }
  return table;
}

/** A text as a value of a type. @throws {TypeError} it doesn't fit */
export function typed(text, type, name = 'value') {
  if (type === 'number') {
    const value = Number(text.trim());
    if (text.trim() === '' || !Number.isFinite(value)) throw new TypeError(`${name}: “${text}” is not a number`);
    return value;
  }
  if (type === 'boolean') {
    if (!['true', 'false'].includes(text.trim())) throw new TypeError(`${name}: “${text}” is neither true nor false`);
    return text.trim() === 'true';
  }
  if (type === 'list') return text.split(',').map((part) => part.trim()).filter((part) => part !== '');
  return text;
}

function typeName(value) {
  if (Array.isArray(value)) return 'list';
  return ['number', 'boolean'].includes(typeof value) ? typeof value : 'string';
}

function asText(value) {
  if (Array.isArray(value)) return value.join(', ');
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value ?? '');
}
