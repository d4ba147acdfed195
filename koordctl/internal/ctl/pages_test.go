// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	// inline is code within a sentence, fence begins or ends a block of it.
	inline = regexp.MustCompile("`([^`]+)`")
	fence  = regexp.MustCompile("^ *```")
	// beyond is where a command ends and the shell's begins.
	beyond = regexp.MustCompile(`\s(#|\||&&|;|>|&$).*$`)
)

// shown are the commands that a page tells people to type: whole ones, and such as a sentence names, which may leave out their arguments.
func shown(text string) (whole, named []string) {
	fenced := false
	for line := range strings.Lines(text) {
		if fence.MatchString(line) {
			fenced = !fenced
			continue
		}
		code := strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if (fenced || strings.HasPrefix(line, "    ")) && strings.HasPrefix(code, "koordctl ") {
			whole = append(whole, code)
			continue
		}
		for _, m := range inline.FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(m[1], "koordctl ") {
				named = append(named, m[1])
			}
		}
	}
	return whole, named
}

// understood parses a command as koordctl does, and runs nothing.
func understood(text string, whole bool) error {
	args := strings.Fields(beyond.ReplaceAllString(text, ""))[1:]
	var out bytes.Buffer
	cmd, rest, err := command(&env{out: &out, err: &out}).Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	given := cmd.Flags().Args()
	if !cmd.Runnable() && len(given) > 0 {
		return fmt.Errorf("unknown command %q for %q", given[0], cmd.CommandPath())
	}
	if !whole && len(given) == 0 {
		return nil
	}
	return cmd.ValidateArgs(given)
}

// TestPagesShowCommandsThatAre: each koordctl command of the manual, with its flags and arguments, is one that this koordctl takes.
func TestPagesShowCommandsThatAre(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../docs/user/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	found := map[string]int{}
	for _, page := range append(pages, "../../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		whole, named := shown(string(text))
		for _, c := range whole {
			if err := understood(c, true); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), c, err)
			}
		}
		for _, c := range named {
			if err := understood(c, false); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), c, err)
			}
		}
		found[filepath.Base(page)] = len(whole) + len(named)
	}
	if found["troubleshoot.md"] < 15 || found["top.md"] < 5 {
		t.Errorf("commands found: %v", found)
	}
	for text, want := range map[string]string{
		"koordctl explian x": "unknown command", "koordctl explain": "arg(s)", "koordctl diff --al": "unknown flag", "koordctl diff x": "unknown command",
		"koordctl top nods": `"nods"`, "koordctl doctor --nri-socket": "needs an argument",
	} {
		if err := understood(text, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// column is the first column of the table of a page that has this head.
func column(page, head string) (out []string) {
	_, rest, _ := strings.Cut(page, head+"\n")
	for i, line := range strings.Split(rest, "\n") {
		if !strings.HasPrefix(line, "| ") {
			if i == 0 {
				continue // what parts head and rows
			}
			break
		}
		cell, _, _ := strings.Cut(line[2:], " |")
		out = append(out, strings.Split(cell, ", ")...)
	}
	return out
}

// The tables of docs/user/troubleshoot.md explain what diff says, all of it, and checks that doctor makes.
func TestTroubleshootingExplainsWhatIsSaid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/user/troubleshoot.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	want := []string{driftNo, driftYes, driftFailed, driftObserve, driftNone, driftRestored}
	if d := cmp.Diff(want, column(page, "| DRIFT | means |")); d != "" {
		t.Errorf("DRIFT (-want +got):\n%s", d)
	}
	files, err := filepath.Glob("doctor*.go")
	if err != nil {
		t.Fatal(err)
	}
	var doctor strings.Builder
	for _, f := range append(files, "daemons.go") {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		code, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		doctor.Write(code)
	}
	checks := column(page, "| check | usual cause |")
	if len(checks) < 10 {
		t.Errorf("%d checks: %q", len(checks), checks)
	}
	for _, c := range checks {
		if !strings.Contains(doctor.String(), `"`+c+`"`) {
			t.Errorf("doctor has no check %s", c)
		}
	}
}
