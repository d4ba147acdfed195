// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// looksOnly are kubectl's commands that change nothing.
var looksOnly = []string{"get", "describe", "explain", "top"}

// untyped are answers of kubectl to a command that is right: the object is not here, or the lab has nothing that measures.
var untyped = regexp.MustCompile(`\(NotFound\)|Metrics API not available`)

// typed are the commands of the manual that look at the cluster: whole lines, and such as stand in a sentence with what they are about.
func typed(t *testing.T) map[string][]string {
	t.Helper()
	pages, err := filepath.Glob("../../../docs/user/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	code := regexp.MustCompile("`(kubectl [^`]+)`")
	out := map[string][]string{}
	for _, page := range pages {
		var all []string
		for line := range strings.Lines(read(t, page)) {
			if text := strings.TrimSpace(line); strings.HasPrefix(line, "    ") && strings.HasPrefix(text, "kubectl ") {
				all = append(all, text)
				continue
			}
			for _, m := range code.FindAllStringSubmatch(line, -1) {
				all = append(all, m[1])
			}
		}
		for _, c := range all {
			c, _, _ = strings.Cut(c, " | ") // grep finds, or not
			words := slices.DeleteFunc(strings.Fields(c)[1:], func(w string) bool { return strings.HasPrefix(w, "-") })
			if len(words) > 1 && slices.ContainsFunc(words[:2], func(w string) bool { return slices.Contains(looksOnly, w) }) {
				out[filepath.Base(page)] = append(out[filepath.Base(page)], c)
			}
		}
	}
	return out
}

// commands: kubectl takes each command of the manual that looks at the cluster, with its flags, kinds, names of columns and paths, and answers
// it, if only that there is no such object.
func (d *defined) commands(ctx context.Context, t *testing.T) {
	all := typed(t)
	if len(all["troubleshoot.md"]) < 14 {
		t.Fatalf("commands found: %q", all)
	}
	kubectl, err := d.c.KubectlCommand(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// The shell parts the words, as it does for who types them.
	run := func(text string) (string, error) {
		cmd := exec.CommandContext(ctx, "sh", "-c", `kubectl() { "$PROGRAM" "$CONFIG" "$@"; }; `+text)
		cmd.Env = append(kubectl.Env, "PROGRAM="+kubectl.Args[0], "CONFIG="+kubectl.Args[1])
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for page, list := range all {
		for _, c := range list {
			out, err := run(c)
			if err != nil && !untyped.MatchString(out) {
				t.Errorf("%s: %s: %v: %s", page, c, err, out)
			}
			if strings.Contains(c, "nodeslo node-001 -o jsonpath=") && (!strings.Contains(out, "Applied\tTrue\t") || !strings.Contains(out, "everything\n")) {
				t.Errorf("%s: %s: says %q of what columns has made", page, c, out)
			}
		}
	}
	for _, wrong := range []string{"kubectl get nodeslos -o wider", "kubectl get nodeslow", "kubectl get nodeslo --show-managed"} {
		if out, err := run(wrong); err == nil || untyped.MatchString(out) {
			t.Errorf("%s: %v: %s", wrong, err, out)
		}
	}
}
