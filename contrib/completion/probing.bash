# bash completion of probing(1) and probefs(1), and of paths in the mount for what reads files: /probe/<TAB>
# shows the command line of each process. bash-completion loads it for probing; for the paths, source it in ~/.bashrc.

_probing_commands='backtrace locals threads tasks locks status globals tables query memory heap top crash events errors
    eval repl inject detach config ctl record performance profile flamegraph break watch pause continue step next
    finish return until jump debug'

# The processes whose pid begins so, or, for PIECE, that have it in their command line: PREFIX PID  -- COMMAND. The
# only one is without its command, as it goes into the line.
_probing_processes() { # BEGINNING PREFIX SUFFIX [PIECE]
    local directory pid line
    for directory in "${PROBE:-/probe}"/[0-9]*; do
        pid=${directory##*/}
        line=$(tr '\0\n' '  ' 2>/dev/null <"/proc/$pid/cmdline") || continue
        if [[ $pid == "$1"* || (-n ${4-} && $line == *"$4"*) ]]; then
            COMPREPLY+=("$2$pid  -- ${line:0:$((COLUMNS > 60 ? COLUMNS - 30 : 40))}")
        fi
    done
    ((${#COMPREPLY[@]} != 1)) || COMPREPLY=("${COMPREPLY[0]%%  -- *}$3")
}

_probing_words() { # WORD...
    local word
    for word; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$word")
    done
}

_probing_names() { # PATH [SUFFIX]
    local path
    for path in "${PROBE:-/probe}/$1"/*; do
        path=${path##*/}
        [[ $path == '*' ]] || _probing_words "${path%"${2-}"}"
    done
}

_probing() {
    local line=${COMP_LINE:0:COMP_POINT} words cur process last
    COMPREPLY=()
    read -ra words <<<"$line" # as COMP_WORDS are cut at colons
    [[ $line != *[[:space:]] ]] || words+=('')
    case ${words[1]-} in -t | -p | --target | --pid) words=("${words[0]}" "${words[@]:2}") ;; esac
    last=$((${#words[@]} - 1))
    cur=${words[last]}
    process=${words[1]-}
    process=${process/#rank:/by-rank/}
    case $last:$process:${words[2]-} in
    1:*)
        _probing_processes "$cur" '' '' "$cur"
        _probing_words list launch cluster all help
        for process in "${PROBE:-/probe}"/by-rank/*; do
            [[ ! -e $process ]] || _probing_words "rank:${process##*/}"
        done
        ;;
    *:list:* | *:ls:* | *:l:*) _probing_words -v -t ;;
    2:cluster:*) _probing_words nodes query ;;
    *:cluster:*) ;;
    *:launch:*) compopt -o default 2>/dev/null ;;
    2:*) _probing_words $_probing_commands ;;
    3:*:backtrace | 3:*:bt | 3:*:b | 3:*:locals | 3:*:repl | 3:*:r | 3:*:continue | 3:*:pause | 3:*:step | 3:*:next | \
        3:*:finish | 3:*:return | 3:*:until | 3:*:jump) _probing_names "$process/threads" ;;
    4:*:step) _probing_words own ;;
    4:*:locals | 4:*:repl | 4:*:r) _probing_names "$process/threads/${words[3]}/frames" ;;
    3:*:tables | 3:*:tbl) _probing_names "$process/tables" .csv ;;
    3:*:globals) _probing_names "$process/globals" ;;
    3:*:record) _probing_words exceptions gc loop process torch spans events ;;
    *:record) _probing_words on off ;;
    3:*:ctl) _probing_words attach detach status interpreter on-crash pause continue record profile ;;
    3:*:config | 3:*:cfg | 3:*:c)
        compopt -o nospace 2>/dev/null
        _probing_words torch.profiling= pprof.sample_freq= record. on-crash= interpreter=
        ;;
    *:performance | *:perf | *:p) _probing_words --cc --torch ;;
    *:debug | *:dbg | *:d) _probing_words --dump --pause ;;
    *:inject | *:in | *:i) _probing_words -c -P -D ;;
    *:query | *:q) if [[ ${words[last - 1]} == -f ]]; then _probing_words table csv json; else _probing_words -f; fi ;;
    *:flamegraph | *:flame | *:fg)
        if [[ ${words[last - 1]} == -o ]]; then
            compopt -o default 2>/dev/null
        else
            _probing_words pprof torch -o -j
        fi
        ;;
    esac
    # what stands before a colon stays in the line
    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*:}"}"}")
    fi
}

# At the top of the mount: command lines; else files, as everywhere.
_probing_paths() {
    local cur=${COMP_WORDS[COMP_CWORD]} probe=${PROBE:-/probe}
    COMPREPLY=()
    if [[ $cur == "$probe"/* && ${cur#"$probe"/} != *[!0-9]* ]]; then
        _probing_processes "${cur#"$probe"/}" "$probe/" /
        compopt -o nospace 2>/dev/null
    elif [[ $cur == -* ]] && declare -F _longopt >/dev/null; then
        _longopt "$@"
    fi
}

_probefs() {
    local cur=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    if [[ ${COMP_WORDS[COMP_CWORD - 1]} == -o ]]; then
        _probing_words allow_other hidepid= contain= nonempty ro fsname=
    elif [[ $cur == -* ]]; then
        _probing_words -f --foreground -d -h --help -V --version --check -o
    else
        compopt -o dirnames 2>/dev/null
    fi
}

complete -o nosort -F _probing probing
complete -F _probefs probefs
complete -o bashdefault -o default -F _probing_paths cat head tail less more grep wc ls
