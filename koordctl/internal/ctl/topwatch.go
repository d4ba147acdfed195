// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// screen is the terminal that is written to; its sizes are 0 when it is none.
type screen struct{ width, height int }

// terminal asks for the size each time: windows change.
func (e *env) terminal() screen {
	if e.screen != nil {
		return e.screen()
	}
	f, ok := e.out.(interface{ Fd() uintptr })
	if !ok {
		return screen{}
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return screen{}
	}
	return screen{width: int(size.Col), height: int(size.Row)}
}

// Sequences that every terminal since the VT100 knows (ECMA-48, xterm's control sequences).
const (
	// enter takes the second screen and hides the cursor, leave gives both back.
	enter = "\x1b[?1049h\x1b[?25l"
	leave = "\x1b[?25h\x1b[?1049l"
	// home goes to the first column of the first line, clearLine and clearRest rub out what an older picture has left.
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

// watch draws again and again until ctx ends. In a terminal each picture takes the place of the one before, cut to the
// window; elsewhere they follow each other. What fails for the moment (an agent that starts anew) is shown in its place,
// but the first picture must succeed.
func (e *env) watch(ctx context.Context, every time.Duration, draw func() (string, error)) error {
	text, err := draw()
	if err != nil {
		return err
	}
	if e.terminal().height > 0 {
		fmt.Fprint(e.out, enter)
		defer fmt.Fprint(e.out, leave)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if _, err := fmt.Fprint(e.out, frame(text, e.terminal())); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if text, err = draw(); err != nil {
			text = "koordctl: " + err.Error() + "\n"
		}
	}
}

// frame is a picture as it is written to a screen.
func frame(text string, s screen) string {
	if s.height == 0 {
		return text
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > s.height {
		lines = append(lines[:s.height-1], "…")
	}
	var b strings.Builder
	b.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clip(l, s.width) + clearLine)
	}
	b.WriteString(clearRest)
	return b.String()
}

// clip cuts a line to the width of the screen, so that it takes one row; every character here is one column wide.
func clip(line string, width int) string {
	r := []rune(line)
	if width <= 0 || len(r) <= width {
		return line
	}
	return string(r[:width-1]) + "…"
}
