"""Names in Latin-1, UCS-2 and UCS-4, of functions, classes, files and threads."""
import threading

import oracle


class Größe:
    def höhe(self):
        return 关闭()


def 关闭():
    𐐀𐐁()


def 𐐀𐐁():
    exec(compile("oracle.park()", "/päth/文件/😀.py", "exec"), {"oracle": oracle})


threading.current_thread().name = "Fädchen 线程 😀"
Größe().höhe()
