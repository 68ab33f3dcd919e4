/** Points and edges on a canvas, by WebGL 2. What it is given was moved in double precision already. */

import type { Camera } from "./camera";
import { FLAT, SPHERE } from "./space";

const PLACE = `
  uniform int model;      // 0 Poincaré disk, 1 Klein disk, 2 half-plane, ${FLAT} flat, ${SPHERE} sphere
  uniform vec3 camera;    // centre x, y and scale
  uniform vec2 size;      // of the canvas
  // three numbers as in space.ts -> place of the picture
  vec2 picture(vec3 p) {
    if (model == 0) return p.xy / (1.0 + p.z);
    if (model == 2) {   // as hyperbolic.ts: MODELS
      float below = p.x > 0.0 ? (p.z * p.z + p.y * p.y) / (1.0 + p.x) : 1.0 - p.x;
      return vec2(-p.y, p.z) / max(below, 1e-30);
    }
    return p.xy;
  }
  vec2 pixels(vec2 place) { return camera.z * (place - camera.xy); }
`;

const POINTS = {
  vertex: `#version 300 es
  precision highp float;
  ${PLACE}
  layout(location = 0) in vec3 at;
  layout(location = 1) in vec4 colour;
  layout(location = 2) in float width;
  uniform float ratio;    // pixels of the canvas for one of the page
  out vec4 ink;
  out float diameter;
  void main() {
    vec2 place = pixels(picture(at));
    gl_Position = vec4(2.0 * place / size, 0.0, 1.0);
    // lengths shrink towards the rim as in the Poincaré disk: by 1 - |z|² = 2w/(1 + w)
    float shrink = model < ${FLAT} ? mix(0.45, 1.5, 2.0 * at.z / (1.0 + at.z)) : 1.0;
    bool behind = model == ${SPHERE} && at.z < 0.0;
    diameter = max(1.5, width * shrink * (behind ? 0.6 : 1.0)) * ratio;
    gl_PointSize = diameter + 1.0;
    ink = behind ? vec4(colour.rgb, 0.25 * colour.a) : colour;
    if (colour.a == 0.0) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
  }`,
  fragment: `#version 300 es
  precision highp float;
  in vec4 ink;
  in float diameter;
  uniform vec3 paper;
  out vec4 result;
  void main() {
    float from = length(gl_PointCoord - 0.5) * (diameter + 1.0);
    float cover = clamp(0.5 * diameter - from + 0.5, 0.0, 1.0);
    if (cover == 0.0) discard;
    // a thin rim of paper, so that large points that touch are told apart
    float rim = diameter > 7.0 ? clamp(from - 0.5 * diameter + 1.5, 0.0, 1.0) : 0.0;
    result = vec4(mix(ink.rgb, paper, 0.7 * rim), ink.a * cover);
  }`,
};

const EDGES = {
  vertex: `#version 300 es
  precision highp float;
  ${PLACE}
  layout(location = 0) in vec3 from;
  layout(location = 1) in vec3 to;
  layout(location = 2) in float product;   // w_A w_B cosh d
  layout(location = 3) in vec4 colour;
  uniform int steps;
  uniform float width;
  out vec4 ink;
  out float side;
  // as hyperbolic.ts: geodesic; as sphere.ts: arc
  vec3 along(float t) {
    if (model == ${FLAT}) return mix(from, to, t);
    if (model == ${SPHERE}) {
      vec3 chord = mix(from, to, t);
      return normalize(chord);
    }
    float s = sin(1.5707963267948966 * t);
    s *= s;
    float r = 1.0 - s;
    float norm = r * r * from.z * from.z + s * s * to.z * to.z + 2.0 * r * s * product;
    return vec3(r * from.xy + s * to.xy, sqrt(norm));
  }
  void main() {
    float step = float(gl_VertexID >> 1);
    float t = step / float(steps);
    vec3 here = along(t);
    vec2 now = pixels(picture(here));
    float apart = (t < 0.5 ? 0.05 : -0.05) / float(steps);
    vec2 direction = (pixels(picture(along(t + apart))) - now) * sign(apart);
    direction = dot(direction, direction) > 0.0 ? normalize(direction) : vec2(1.0, 0.0);
    side = (gl_VertexID & 1) == 0 ? -1.0 : 1.0;
    vec2 offset = vec2(-direction.y, direction.x) * side * (0.5 * width + 0.5);
    gl_Position = vec4(2.0 * (now + offset) / size, 0.0, 1.0);
    side *= 0.5 * width + 0.5;
    ink = model == ${SPHERE} && here.z < 0.0 ? vec4(colour.rgb, 0.3 * colour.a) : colour;
  }`,
  fragment: `#version 300 es
  precision highp float;
  in vec4 ink;
  in float side;
  uniform float width;
  uniform float strength;
  out vec4 result;
  void main() {
    float cover = clamp(0.5 * width - abs(side) + 0.5, 0.0, 1.0);
    result = vec4(ink.rgb, ink.a * cover * strength);
  }`,
};

/** Edges of one look: so many steps along each. */
export interface Batch {
  steps: number;
  count: number;
  /** EDGE_FLOATS each: from, to, product, colour. */
  content: ArrayBuffer;
}

export const EDGE_FLOATS = 8; // the last holds a colour of four bytes

export class Renderer {
  private readonly gl: WebGL2RenderingContext;
  private readonly points: WebGLProgram;
  private readonly edges: WebGLProgram;
  private readonly at: WebGLBuffer;
  private readonly colour: WebGLBuffer;
  private readonly width: WebGLBuffer;
  private readonly order: WebGLBuffer;
  private readonly instances: WebGLBuffer;
  private readonly pointArrays: WebGLVertexArrayObject;
  private readonly edgeArrays: WebGLVertexArrayObject;
  private count = 0;
  private fence: WebGLSync | null = null;

  constructor(readonly canvas: HTMLCanvasElement) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: false });
    if (!gl) throw new Error("this browser has no WebGL 2, which draws the points; try another one");
    this.gl = gl;
    this.points = program(gl, POINTS);
    this.edges = program(gl, EDGES);
    [this.at, this.colour, this.width, this.order, this.instances] = Array.from({ length: 5 }, () =>
      gl.createBuffer(),
    ) as [WebGLBuffer, WebGLBuffer, WebGLBuffer, WebGLBuffer, WebGLBuffer];
    this.pointArrays = gl.createVertexArray();
    gl.bindVertexArray(this.pointArrays);
    attribute(gl, this.at, 0, 3, gl.FLOAT);
    attribute(gl, this.colour, 1, 4, gl.UNSIGNED_BYTE);
    attribute(gl, this.width, 2, 1, gl.FLOAT);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.order);
    this.edgeArrays = gl.createVertexArray();
    gl.bindVertexArray(this.edgeArrays);
    const stride = 4 * EDGE_FLOATS;
    attribute(gl, this.instances, 0, 3, gl.FLOAT, stride, 0, 1);
    attribute(gl, this.instances, 1, 3, gl.FLOAT, stride, 12, 1);
    attribute(gl, this.instances, 2, 1, gl.FLOAT, stride, 24, 1);
    attribute(gl, this.instances, 3, 4, gl.UNSIGNED_BYTE, stride, 28, 1);
    gl.bindVertexArray(null);
    gl.enable(gl.BLEND);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  /** The order of drawing: what comes last lies on top, and is what is left where not all are drawn. */
  setOrder(order: Uint32Array): void {
    const { gl } = this;
    this.count = order.length;
    gl.bindVertexArray(this.pointArrays);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, order, gl.STATIC_DRAW);
    gl.bindVertexArray(null);
  }

  /** Four bytes of colour and a width in pixels of the page for each point. */
  setLook(colours: Uint8Array, widths: Float32Array): void {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colour);
    gl.bufferData(gl.ARRAY_BUFFER, colours, gl.STATIC_DRAW);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.width);
    gl.bufferData(gl.ARRAY_BUFFER, widths, gl.STATIC_DRAW);
  }

  setFrame(frame: Float32Array): void {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.at);
    gl.bufferData(gl.ARRAY_BUFFER, frame, gl.STREAM_DRAW);
  }

  draw(
    model: number,
    camera: Camera,
    batches: Batch[],
    strength: number,
    paper: readonly number[],
    most: number,
  ): void {
    const { gl, canvas } = this;
    const ratio = devicePixelRatio;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(paper[0]! / 255, paper[1]! / 255, paper[2]! / 255, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const common = (used: WebGLProgram): void => {
      gl.useProgram(used);
      gl.uniform1i(gl.getUniformLocation(used, "model"), model);
      gl.uniform3f(gl.getUniformLocation(used, "camera"), camera.x, camera.y, camera.scale * ratio);
      gl.uniform2f(gl.getUniformLocation(used, "size"), canvas.width, canvas.height);
    };
    if (batches.length) {
      common(this.edges);
      gl.uniform1f(gl.getUniformLocation(this.edges, "width"), ratio);
      gl.uniform1f(gl.getUniformLocation(this.edges, "strength"), strength);
      gl.bindVertexArray(this.edgeArrays);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.instances);
      for (const { steps, count, content } of batches) {
        gl.bufferData(gl.ARRAY_BUFFER, new Uint8Array(content, 0, 4 * EDGE_FLOATS * count), gl.STREAM_DRAW);
        gl.uniform1i(gl.getUniformLocation(this.edges, "steps"), steps);
        gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 2 * (steps + 1), count);
      }
    }
    common(this.points);
    gl.uniform1f(gl.getUniformLocation(this.points, "ratio"), ratio);
    gl.uniform3f(gl.getUniformLocation(this.points, "paper"), paper[0]! / 255, paper[1]! / 255, paper[2]! / 255);
    gl.bindVertexArray(this.pointArrays);
    const drawn = Math.min(Math.floor(most), this.count);
    gl.drawElements(gl.POINTS, drawn, gl.UNSIGNED_INT, 4 * (this.count - drawn));
    gl.bindVertexArray(null);
    if (this.fence) gl.deleteSync(this.fence);
    this.fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
  }

  /** Whether the card still draws what it was given. */
  busy(): boolean {
    const { gl, fence } = this;
    if (!fence || gl.isContextLost()) return false;
    if (gl.getSyncParameter(fence, gl.SYNC_STATUS) !== gl.SIGNALED) return true;
    gl.deleteSync(fence);
    this.fence = null;
    return false;
  }

  /** Wait until all is drawn: for measurements. */
  finish(): void {
    this.gl.readPixels(0, 0, 1, 1, this.gl.RGBA, this.gl.UNSIGNED_BYTE, new Uint8Array(4));
  }
}

function program(gl: WebGL2RenderingContext, source: { vertex: string; fragment: string }): WebGLProgram {
  const made = gl.createProgram();
  for (const [kind, text] of [
    [gl.VERTEX_SHADER, source.vertex],
    [gl.FRAGMENT_SHADER, source.fragment],
  ] as const) {
    const shader = gl.createShader(kind)!;
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) ?? "shader");
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made) ?? "program");
  return made;
}

function attribute(
  gl: WebGL2RenderingContext,
  buffer: WebGLBuffer,
  place: number,
  size: number,
  type: number,
  stride = 0,
  offset = 0,
  divisor = 0,
): void {
  gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
  gl.enableVertexAttribArray(place);
  gl.vertexAttribPointer(place, size, type, type === gl.UNSIGNED_BYTE, stride, offset);
  gl.vertexAttribDivisor(place, divisor);
}
