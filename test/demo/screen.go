// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Styles of text on a terminal.
const (
	bold  = "1"
	dim   = "2"
	green = "32"
	cyan  = "36"
)

// screen prints for people: colours on a terminal only.
type screen struct {
	out    io.Writer
	colour bool
	// width is the terminal's, within reason; defaultWidth elsewhere.
	width int
	// terminal: a line can be written over. unicode: the locale shows more than ASCII.
	terminal, unicode bool
	// open: a live line stands there.
	open bool
}

const (
	defaultWidth = 120
	widest       = 160
)

func newScreen(f *os.File) *screen {
	s := &screen{out: f, width: defaultWidth, unicode: unicodeLocale(os.Getenv)}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		s.terminal = true
		s.colour = os.Getenv("NO_COLOR") == ""
		if size.Col > 0 {
			s.width = max(80, min(int(size.Col), widest))
		}
	}
	return s
}

// unicodeLocale reports whether the locale of an environment is a UTF-8 one: LC_ALL before LC_CTYPE before LANG (locale(7)).
func unicodeLocale(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(env(name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

// pick is the first text where the locale can show it, else the second.
func (s *screen) pick(unicode, ascii string) string {
	if s.unicode {
		return unicode
	}
	return ascii
}

func (s *screen) paint(style, text string) string {
	if !s.colour || style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (s *screen) line(format string, args ...any) {
	s.wipe()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// live shows a line that the next one replaces; where nothing can be replaced, none.
func (s *screen) live(text string) {
	if s.terminal {
		fmt.Fprintf(s.out, "\r\x1b[K%s", text)
		s.open = true
	}
}

// wipe takes the live line away.
func (s *screen) wipe() {
	if s.open {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.open = false
	}
}

// title opens a part of the demo.
func (s *screen) title(text string) {
	s.line("\n%s", s.paint(bold, text))
	s.line("%s", s.paint(dim, strings.Repeat(s.pick("─", "-"), min(utf8.RuneCountInString(text), 100))))
}

// command shows a command as it would be typed.
func (s *screen) command(text string) { s.line("%s", s.paint(cyan, "$ "+text)) }

// table prints aligned columns, indented by two, the styles by column; a long last column is wrapped.
func (s *screen) table(head []string, rows [][]string, styles []string) {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	left := 2
	for _, w := range widths[:len(widths)-1] {
		left += w + 2
	}
	s.line("  %s", s.paint(dim, strings.TrimRight(pad(head, widths), " ")))
	for _, row := range rows {
		lines := wrap(row[len(row)-1], max(s.width-left, 30))
		var b strings.Builder
		for i, cell := range row[:len(row)-1] {
			b.WriteString(s.paint(styles[i], cell) + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		s.line("  %s%s", b.String(), s.paint(styles[len(row)-1], lines[0]))
		for _, l := range lines[1:] {
			s.line("%s%s", strings.Repeat(" ", left), s.paint(styles[len(row)-1], l))
		}
	}
}

func pad(cells []string, widths []int) string {
	var b strings.Builder
	for i, c := range cells {
		b.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
	}
	return b.String()
}

// wrap breaks text at spaces into lines of at most width runes; a longer word stays whole.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
