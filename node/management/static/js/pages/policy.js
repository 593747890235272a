/** One policy. */

import { renderPolicy } from '../policy_page.js';

export const title = ({ name }) => name;

export const render = (view, params) => renderPolicy(view, 'policy', params);
