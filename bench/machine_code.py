"""Reads the machine code of kernels on a GPU, without a GPU: what each loop costs, and which share of the memory's bandwidth
that allows.

  SCONCE_KERNEL_TEXTS=texts build/release/tests/cuda_graphs_test --gtest_filter='*PrintedKernels*'
  build/venv/bin/python bench/machine_code.py texts

With --check, it fails where a kernel spills registers, or does not load and store as many bytes at once as its text says.

NVRTC compiles each text, NVIDIA's disassembler (nvdisasm, which Triton's package has) prints it. A loop ends at a branch
backwards. The share is that of a roofline: a scheduler issues one instruction of a warp a cycle, and nothing else counts,
so that it is an upper bound. Shares above 100 % say that the kernel waits for memory, as it should.
"""

import argparse
import ctypes
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# Of an H100 SXM: NVIDIA, "H100 Tensor Core GPU Architecture", 2022; the clock is the one it holds under load.
SCHEDULERS = 132 * 4
CLOCK = 1.755e9
BANDWIDTH = 3.35e12
WARP = 32


@dataclasses.dataclass
class Loop:
    instructions: int
    loaded: int  # bytes of global memory, by one thread in one trip
    stored: int
    shared: int
    widest: int  # bytes of the widest access of global memory

    @property
    def share(self):
        moved = self.loaded + self.stored
        return moved * WARP * SCHEDULERS * CLOCK / self.instructions / BANDWIDTH


@dataclasses.dataclass
class Kernel:
    name: str
    instructions: int
    spills: int  # accesses of local memory
    registers: int
    widest: int  # bytes of the widest access of global memory
    loops: list

    @property
    def share(self):
        """Of all loops with accesses of global memory, as if each ran as often."""
        busy = [loop for loop in self.loops if loop.loaded + loop.stored]
        if not busy:
            return None
        moved = sum(loop.loaded + loop.stored for loop in busy)
        issued = sum(loop.instructions for loop in self.loops)
        return moved * WARP * SCHEDULERS * CLOCK / issued / BANDWIDTH


class Nvrtc:
    def __init__(self, packages):
        found = sorted(packages.glob("nvidia/*/lib/libnvrtc.so.*")) + sorted(packages.glob("nvidia/*/lib/libnvrtc.so"))
        if not found:
            sys.exit(f"no libnvrtc below {packages}: install torch's CUDA packages")
        self.library = ctypes.CDLL(str(found[0]))

    def compile(self, text, architecture):
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        options = [f"--gpu-architecture={architecture}", "--fmad=false", "--std=c++17"]
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        if self.library.nvrtcCompileProgram(program, len(options), array):
            size = ctypes.c_size_t()
            self._call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self._call("nvrtcGetProgramLog", program, log)
            raise RuntimeError(log.value.decode())
        size = ctypes.c_size_t()
        self._call("nvrtcGetCUBINSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        self._call("nvrtcGetCUBIN", program, code)
        return code.raw

    def _call(self, name, *arguments):
        if getattr(self.library, name)(*arguments):
            raise RuntimeError(f"{name} failed")


def bytes_of(opcode):
    """Returns the bytes that an access moves."""
    for suffix, size in ((".128", 16), (".64", 8), (".U16", 2), (".S16", 2), (".16", 2), (".U8", 1), (".S8", 1)):
        if suffix in opcode:
            return size
    return 4


def read_code(name, listing):
    instructions = []  # address, opcode, label that it branches to
    labels = {}
    waiting = []
    registers = 0
    for line in listing.splitlines():
        label = re.match(r"\s*(\.L_x?_?\w+):", line)
        if label:
            waiting.append(label[1])
            continue
        found = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*?);", line)
        if not found:
            used = re.search(r"REG:(\d+)", line)
            registers = int(used[1]) if used else registers
            continue
        address = int(found[1], 16)
        for each in waiting:
            labels[each] = address
        waiting = []
        target = re.search(r"`\((\.L\w+)\)", found[3])
        instructions.append((address, found[2], target[1] if target else None))
        registers = max([registers] + [int(r) + 1 for r in re.findall(r"\bR(\d+)\b", found[3])])
    loops = []
    for address, opcode, target in instructions:
        if not (opcode.startswith("BRA") and target in labels and labels[target] < address):
            continue
        body = [op for at, op, _ in instructions if labels[target] <= at <= address and op != "NOP"]
        loads = [bytes_of(op) for op in body if op.startswith(("LDG", "LD."))]
        stores = [bytes_of(op) for op in body if op.startswith(("STG", "ST."))]
        shared = sum(bytes_of(op) for op in body if op.startswith(("LDS", "STS")))
        loops.append((labels[target], address, Loop(len(body), sum(loads), sum(stores), shared, max(loads + stores, default=0))))
    inner = [
        loop for begin, end, loop in loops if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e, _ in loops)
    ]
    opcodes = [op for _, op, _ in instructions if op != "NOP"]
    spills = sum(op.startswith(("LDL", "STL")) for op in opcodes)
    widest = max((bytes_of(op) for op in opcodes if op.startswith(("LDG", "STG"))), default=0)
    return Kernel(name, len(opcodes), spills, registers, widest, inner)


def faults_of(kernel, text):
    """What `--check` does not allow. Functions of float64 have slow paths with arrays."""
    faults = []
    if kernel.spills and "double" not in text.split("__global__")[-1]:
        faults.append(f"{kernel.name}: {kernel.spills} accesses of local memory")
    sizes = {"float": 4, "bfloat16": 2, "float16": 2, "double": 8, "long long": 8}
    wide = [sizes.get(type, 0) * int(count) for type, count in re.findall(r"\*reinterpret_cast<const Vector<([a-z0-9 ]+), (\d+)>\*>", text)]
    if 16 in wide and kernel.widest < 16:
        faults.append(f"{kernel.name}: its widest access has {kernel.widest} bytes, not 16")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=pathlib.Path, help="a folder with CUDA C++, one kernel in each file (*.cu)")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="print faults alone; exit 1 if there are any")
    parser.add_argument("--packages", type=pathlib.Path, help="the folder with torch's packages (of this Python)")
    options = parser.parse_args()
    packages = options.packages or pathlib.Path(next(path for path in sys.path if path.endswith("site-packages")))
    disassembler = packages / "triton/backends/nvidia/bin/nvdisasm"
    if not disassembler.exists():
        sys.exit(f"no disassembler at {disassembler}: install triton")
    nvrtc = Nvrtc(packages)
    kernels = []
    faults = []
    for path in sorted(options.texts.glob("*.cu")):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(nvrtc.compile(path.read_text(), options.architecture))
            file.flush()
            listing = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=True).stdout
        kernels.append(read_code(path.stem, listing))
        faults += faults_of(kernels[-1], path.read_text())
    if options.check:
        print("\n".join(faults) if faults else f"{len(kernels)} kernels, no fault")
        sys.exit(1 if faults or not kernels else 0)
    if options.json:
        print(json.dumps([dataclasses.asdict(kernel) for kernel in kernels]))
        return
    print(f"{options.architecture}: instructions of the kernel, accesses of local memory, registers; of each innermost loop the")
    print("instructions, bytes loaded + stored (the widest access), bytes of shared memory; the share of bandwidth.\n")
    print("| kernel | instructions | spills | registers | loops | share |")
    print("|---|---|---|---|---|---|")
    for each in kernels:
        loops = "; ".join(
            f"{loop.instructions}: {loop.loaded} + {loop.stored} ({loop.widest})" + (f", {loop.shared}" if loop.shared else "")
            for loop in each.loops
        )
        share = "" if each.share is None else f"{each.share:.0%}"
        print(f"| {each.name} | {each.instructions} | {each.spills} | {each.registers} | {loops} | {share} |")


if __name__ == "__main__":
    main()
