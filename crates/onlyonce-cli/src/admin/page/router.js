// Views by the part of the address after `#`, with their filters in it: #/operations?state=unknown

/** The view's name, what follows it, and its parameters. */
export function parse(hash) {
  const text = hash.replace(/^#\/?/, "");
  const at = text.indexOf("?");
  const [name, ...rest] = (at < 0 ? text : text.slice(0, at)).split("/");
  return { name, rest: rest.map(decode), params: new URLSearchParams(at < 0 ? "" : text.slice(at + 1)) };
}

function decode(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

/** The address of a view. Empty values are left out. */
export function link(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of params instanceof URLSearchParams ? params : Object.entries(params)) {
    if (value !== "" && value !== null && value !== undefined) query.append(name, value);
  }
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export const operationLink = (id) => link(`operation/${encodeURIComponent(id)}`);
