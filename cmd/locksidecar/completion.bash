# Used where bash-completion is not loaded. It sets cur, prev, words and cword;
# what bash splits at the ':' and '=' of COMP_WORDBREAKS stays one word, since
# keys may have them.
__locksidecar_init_completion()
{
    local line=$COMP_LINE rest word i
    COMPREPLY=() words=() cword=0
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        rest=${line#"${line%%[![:space:]]*}"}
        if ((i > 0)) && [[ $rest == "$line" && ($word == *[:=]* || ${COMP_WORDS[i - 1]} == *[:=]*) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        line=${rest#"$word"}
        ((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
    done
    cur=${words[cword]}
    prev=
    ((cword > 0)) && prev=${words[cword - 1]}
    return 0
}
