#include "fs/link/agent_image.h"

#include "agent/wire/proto.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

/* embed.sh */
extern const char agent_library[], agent_library_end[];

/* The value of an exported symbol; 0: there is none. The bytes are our own, not a target's. */
static uint64_t find_symbol(const char *image, const char *name)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);

    for (size_t i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
        const char *names = image + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (symbols[k].st_shndx != SHN_UNDEF && !strcmp(names + symbols[k].st_name, name))
                return symbols[k].st_value;
    }
    return 0;
}

int agent_image(struct inject_image *out)
{
    uint64_t entry = find_symbol(agent_library, AGENT_START_SYMBOL);

    if (!entry)
        return -ENOEXEC;
    *out = (struct inject_image){.data = agent_library,
                                 .size = (size_t)(agent_library_end - agent_library),
                                 .entry = entry};
    return 0;
}
