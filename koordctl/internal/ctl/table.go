// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// printJSON prints any value indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// lastWidth is where the last column, which holds sentences, breaks.
const lastWidth = 88

// printTable prints aligned columns; empty cells become "-".
func printTable(w io.Writer, head []string, rows [][]string) error {
	return printRows(w, head, rows, func(s string) []string { return []string{s} })
}

// printSentences is printTable whose last column breaks between words.
func printSentences(w io.Writer, head []string, rows [][]string) error {
	return printRows(w, head, rows, broken)
}

func printRows(w io.Writer, head []string, rows [][]string, split func(string) []string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, r := range rows {
		last := len(r) - 1
		for _, c := range r[:last] {
			fmt.Fprint(tw, cell(c), "\t")
		}
		for i, part := range split(printable(r[last])) {
			if i > 0 {
				fmt.Fprint(tw, strings.Repeat("\t", last))
			}
			fmt.Fprintln(tw, part)
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// broken is text in lines of at most lastWidth, longer only where a word is.
func broken(text string) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > lastWidth {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// printable keeps terminal escapes, which a hostile pod may have put there, from the terminal; empty is "-".
func printable(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
	if s == "" {
		return "-"
	}
	return s
}

// cell is one line of a value that is no sentence.
func cell(s string) string {
	s = printable(s)
	const longest = 120
	if r := []rune(s); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return s
}
