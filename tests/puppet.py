"""A process that somebody has taken over: its main thread makes the system calls that it is told to. As root, by
ptrace(2); x86-64."""
import ctypes
import os
import signal

from interpreters import eventually

PTRACE_CONT = 7
PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_DETACH = 9, 12, 13, 17
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000
SYSCALL = b"\x0f\x05"
CALLS = {"read": 0, "write": 1, "nanosleep": 35, "socket": 41, "sendto": 44, "fork": 57, "execve": 59, "kill": 62,
         "prctl": 157, "chroot": 161, "mount": 165, "openat": 257, "unshare": 272, "setns": 308, "clone3": 435}
ARGUMENTS = "rdi", "rsi", "rdx", "r10", "r8", "r9"

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):  # struct user_regs_struct
    _fields_ = [(name, ctypes.c_ulonglong) for name in (
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base "
        "ds es fs gs").split()]


def ptrace(request, pid, data=None):
    if libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Puppet:
    """As a context: the process is held meanwhile, in a system call, and goes on with it afterwards. The thread that
    enters it has to do the rest, too."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        ptrace(PTRACE_SEIZE, self.pid)
        eventually(self._hold, what="that it is in a system call")
        return self

    def _hold(self):
        """Whether it is held there; else it runs on: it may have only answered somebody."""
        ptrace(PTRACE_INTERRUPT, self.pid)
        os.waitpid(self.pid, WALL)
        self.before = self.registers()
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(self.before.rip - len(SYSCALL))
            if memory.read(len(SYSCALL)) == SYSCALL:
                return True
        ptrace(PTRACE_CONT, self.pid)
        return False

    def __exit__(self, *_):
        ptrace(PTRACE_SETREGS, self.pid, ctypes.byref(self.before))
        ptrace(PTRACE_DETACH, self.pid)

    def registers(self):
        registers = Registers()
        ptrace(PTRACE_GETREGS, self.pid, ctypes.byref(registers))
        return registers

    def prepare(self, name, arguments):
        """Bytes are put where its stack isn't yet."""
        registers = self.registers()
        at = self.before.rsp - 65536
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
            for register, argument in zip(ARGUMENTS, arguments):
                if isinstance(argument, bytes):
                    memory.seek(at)
                    memory.write(argument)
                    argument, at = at, at + len(argument) + 64 & ~15
                setattr(registers, register, argument & (1 << 64) - 1)
        registers.rip = self.before.rip - len(SYSCALL)  # where it was held is behind a SYSCALL
        registers.rax, registers.orig_rax = CALLS[name], (1 << 64) - 1
        ptrace(PTRACE_SETREGS, self.pid, ctypes.byref(registers))

    def call(self, name, *arguments):
        """What it returns; less than 0 is an error."""
        self.prepare(name, arguments)
        ptrace(PTRACE_SINGLESTEP, self.pid)
        _, status = os.waitpid(self.pid, WALL)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, status
        return ctypes.c_longlong(self.registers().rax).value


def leave(pid, name, *arguments):
    """Has it make a call that doesn't come back."""
    puppet = Puppet(pid).__enter__()
    puppet.prepare(name, arguments)
    ptrace(PTRACE_DETACH, pid)
