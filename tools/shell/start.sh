# sh tools/shell/start.sh BIN: a shell of the user's own kind, with BIN first on its PATH.
#
# The files of the user (.bashrc and the like) may put other folders first. So each shell reads a file of ours, which reads
# the user's and then puts BIN first. A shell that reads no such file has it from here.
FENCEHOLD_BIN=$1
PATH=$FENCEHOLD_BIN:$PATH
export FENCEHOLD_BIN PATH
here=$(cd "$(dirname "$0")" && pwd)
shell=${SHELL:-/bin/sh}
case ${shell##*/} in
bash*)
    "$shell" --rcfile "$here/bashrc"
    ;;
zsh*)
    FENCEHOLD_USER_ZDOTDIR=${ZDOTDIR-$HOME} FENCEHOLD_ZDOTDIR=$here/zsh ZDOTDIR=$here/zsh "$shell"
    ;;
fish*)
    "$shell" --init-command 'set -gx PATH $FENCEHOLD_BIN $PATH'
    ;;
*)
    FENCEHOLD_USER_ENV=${ENV-} ENV=$here/shrc "$shell"
    ;;
esac
exit 0 # how the last command of that shell ended is nobody's error
