# fish: paths of a probefs mount with the command lines of its processes, for what reads files. In conf.d.
function __probing_paths
    set -l probe (set -q PROBE; and echo $PROBE; or echo /probe)
    string match -q -- "$probe/*" (commandline -ct); or return
    for directory in $probe/*
        set -l pid (string match -r '[0-9]+$' $directory)
        and printf '%s/\t%s\n' $directory (tr '\0\n' '  ' 2>/dev/null </proc/$pid/cmdline)
    end
end
for reader in cat head tail less more grep wc ls
    complete -c $reader -a '(__probing_paths)'
end
