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
}

const (
	defaultWidth = 120
	widest       = 160
)

func newScreen(f *os.File) *screen {
	s := &screen{out: f, width: defaultWidth}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		s.colour = os.Getenv("NO_COLOR") == ""
		if size.Col > 0 {
			s.width = max(80, min(int(size.Col), widest))
		}
	}
	return s
}

func (s *screen) paint(style, text string) string {
	if !s.colour || style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (s *screen) line(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// title opens a part of the demo.
func (s *screen) title(text string) {
	s.line("\n%s", s.paint(bold, text))
	s.line("%s", s.paint(dim, strings.Repeat("─", min(utf8.RuneCountInString(text), 100))))
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
