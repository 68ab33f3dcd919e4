/** Where the page has its data from: the server it came from, or its own file. */

export interface ChartMeta {
  name: string;
  kind: "hyperbolic" | "flat" | "sphere";
  array: string;
  /** True length of one unit of the chart. */
  unit: number;
  /** What the picture keeps. */
  note: string;
}

export interface ColumnMeta {
  name: string;
  kind: "number" | "category" | "text";
  array: string;
  /** Of a category: a name for each code. */
  names?: string[];
}

export interface AtlasMeta {
  name: string;
  count: number;
  geometry: string;
  directed: boolean;
  charts: ChartMeta[];
  columns: ColumnMeta[];
  edges: string | null;
  /** Coordinates at the origin, for planes through two nodes. */
  logs: { array: string; dim: number } | null;
  anchors: { numbers: number[]; array: string } | null;
  /** Of an exported page: the nearest of each node. */
  nearest: { k: number; numbers: string; distances: string } | null;
  /** Whether neighbours can be asked for. */
  neighbours: boolean;
  thumbnails: boolean;
  aperture: string | null;
  /** The node to show first, and the column to colour by. */
  colour: string | null;
}

export interface Meta {
  title: string;
  version: string;
  atlases: AtlasMeta[];
}

export interface Neighbours {
  numbers: number[];
  distances: number[];
}

export interface Source {
  meta(): Promise<Meta>;
  array(atlas: number, name: string): Promise<ArrayBuffer>;
  neighbours(atlas: number, node: number): Promise<Neighbours>;
  /** An address of a small picture; null where a point has none. */
  thumbnail(atlas: number, node: number): Promise<string | null>;
}

export function openSource(): Source {
  return document.getElementById("meta")?.textContent ? new File() : new Server();
}

class Server implements Source {
  // a server that others can reach hands the page out to those who know its token, and asks for it again
  private readonly token = new URLSearchParams(location.search).get("token");

  async meta(): Promise<Meta> {
    return (await this.get("meta")).json() as Promise<Meta>;
  }

  async array(atlas: number, name: string): Promise<ArrayBuffer> {
    return (await this.get(`arrays/${atlas}/${encodeURIComponent(name)}`)).arrayBuffer();
  }

  async neighbours(atlas: number, node: number): Promise<Neighbours> {
    return (await this.get(`neighbours/${atlas}/${node}`)).json() as Promise<Neighbours>;
  }

  async thumbnail(atlas: number, node: number): Promise<string | null> {
    const answer = await this.get(`thumbnails/${atlas}/${node}`);
    return answer.status === 204 ? null : URL.createObjectURL(await answer.blob());
  }

  private async get(path: string): Promise<Response> {
    const answer = await fetch(path, { headers: this.token ? { "X-Token": this.token } : {} });
    if (!answer.ok) throw new Error((await answer.text()).trim() || `the server answers ${answer.status}`);
    return answer;
  }
}

class File implements Source {
  private readonly opened = new Map<string, Promise<ArrayBuffer>>();
  private pages: AtlasMeta[] = [];

  async meta(): Promise<Meta> {
    const meta = JSON.parse(new TextDecoder().decode(await this.content("meta"))) as Meta;
    this.pages = meta.atlases;
    return meta;
  }

  array(atlas: number, name: string): Promise<ArrayBuffer> {
    return this.content(`${atlas}/${name}`);
  }

  async neighbours(atlas: number, node: number): Promise<Neighbours> {
    const nearest = this.pages[atlas]!.nearest;
    if (!nearest) throw new Error("this page does not hold neighbours");
    const from = node * nearest.k;
    const numbers = new Uint32Array(await this.array(atlas, nearest.numbers)).slice(from, from + nearest.k);
    const distances = new Float64Array(await this.array(atlas, nearest.distances)).slice(from, from + nearest.k);
    return { numbers: [...numbers], distances: [...distances] };
  }

  async thumbnail(atlas: number, node: number): Promise<string | null> {
    const element = document.getElementById(`${atlas}/thumbnail/${node}`);
    return element ? `data:image/jpeg;base64,${element.textContent}` : null;
  }

  /** What an element of the page holds: base64 of compressed bytes. It is read once. */
  private content(name: string): Promise<ArrayBuffer> {
    let found = this.opened.get(name);
    if (!found) {
      const element = document.getElementById(name);
      if (!element?.textContent) return Promise.reject(new Error(`the page holds no ${name}`));
      const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
      element.remove();
      found = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
      this.opened.set(name, found);
    }
    return found;
  }
}
