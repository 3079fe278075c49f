# For an interactive zsh of `make shell`, in place of ~/.zshrc, which it reads first.
ZDOTDIR=$FENCEHOLD_USER_ZDOTDIR
if [[ -r $ZDOTDIR/.zshrc ]]; then
    . $ZDOTDIR/.zshrc
fi
PATH=$FENCEHOLD_BIN:$PATH
