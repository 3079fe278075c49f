# For zsh of `make shell`: the user's own file first, which may name another folder for the next ones.
ZDOTDIR=$FENCEHOLD_USER_ZDOTDIR
if [[ -r $ZDOTDIR/.zshenv ]]; then
    . $ZDOTDIR/.zshenv
fi
FENCEHOLD_USER_ZDOTDIR=${ZDOTDIR:-$HOME}
ZDOTDIR=$FENCEHOLD_ZDOTDIR
