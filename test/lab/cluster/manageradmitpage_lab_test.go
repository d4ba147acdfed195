// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// bestEffort: docs/user/best-effort.md as somebody follows it. Its objects are taken by strict validation, a pod of its Deployment becomes what the
// page shows, and its mistakes print what it says.
func (a *admitted) bestEffort(t *testing.T) {
	ctx := t.Context()
	page := read(t, "../../../docs/user/best-effort.md")
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d YAML blocks", len(blocks))
	}
	profile, deployment, after := blocks[0][1], blocks[1][1], blocks[2][1]
	a.user(t, profile)
	if err := a.c.Namespace(ctx, "reports"); err != nil {
		t.Fatal(err)
	}
	a.user(t, deployment)
	t.Cleanup(func() {
		if err := a.c.Admin().Delete(ctxAfter(t), profilePath+"/best-effort", -1); err != nil {
			t.Error(err)
		}
	})
	written, err := cluster.ParseObject([]byte(deployment))
	if err != nil {
		t.Fatal(err)
	}
	want, err := cluster.ParseObject([]byte("apiVersion: v1\nkind: Pod\n" + after))
	if err != nil {
		t.Fatal(err)
	}
	pod := written.At("spec", "template").(map[string]any)
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	pod["metadata"].(map[string]any)["name"] = "try"
	made := func() (cluster.Object, string, error) { return a.printed(ctx, t, pod) }
	passes(t, "the page's pod", func() error {
		got, said, err := made()
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return lacks(map[string]any(want), map[string]any(got), "pod")
	})
	says := func(mistake, text string, out func() string) {
		t.Helper()
		if !strings.Contains(page, text) {
			t.Errorf("%s: the page does not say %q", mistake, text)
		}
		passes(t, mistake, func() error {
			if got := out(); !strings.Contains(got, text) {
				return fmt.Errorf("printed %s, want %q", got, text)
			}
			return nil
		})
	}
	for change, text := range map[string]string{
		"probability: 150%":          "probability is a whole number 0..100 or a percentage such as 50%",
		"qosClass: Batch":            `Unsupported value: "Batch": supported values: "LSE", "LSR", "LS", "BE", "SYSTEM"`,
		"priorityClass: koord-batch": `unknown field "spec.priorityClass"`,
	} {
		says(change, text, func() string {
			_, said, _ := a.printedOf(ctx, t, strings.Replace(profile[strings.Index(profile, "---"):], "qosClass: BE", change, 1), "apply")
			return said
		})
	}
	tell := func(change map[string]any) {
		t.Helper()
		if _, err := a.c.Admin().Patch(ctx, profilePath+"/best-effort", cluster.MergePatch, map[string]any{"spec": change}); err != nil {
			t.Fatal(err)
		}
	}
	said := func() string {
		got, said, err := made()
		return fmt.Sprint(got.Str("metadata", "annotations", "koord-rt.dev/profiles"), " ", said, err)
	}
	tell(map[string]any{"priorityClassName": "koord-btach"})
	says("koord-btach", `profile best-effort is not applied: there is no PriorityClass "koord-btach"; create it`, said)
	tell(map[string]any{"priorityClassName": nil})
	says("no priority class", `admission webhook "vpod-create.koordinator.sh" denied the request`, said)
	tell(map[string]any{"priorityClassName": "koord-batch", "probability": 0})
	says("left out", "!best-effort", said)
}

// printed is what becomes of a pod that is tried with kubectl, and what kubectl prints beside it.
func (a *admitted) printed(ctx context.Context, t *testing.T, pod map[string]any) (cluster.Object, string, error) {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return a.printedOf(ctx, t, string(text), "create", "-n", "reports", "-o", "json")
}

func (a *admitted) printedOf(ctx context.Context, t *testing.T, text string, args ...string) (cluster.Object, string, error) {
	t.Helper()
	cmd, err := a.c.KubectlCommand(ctx, append(args, "--dry-run=server", "-f", "-")...)
	if err != nil {
		t.Fatal(err)
	}
	var out, said strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &said
	err = cmd.Run()
	var o cluster.Object
	_ = json.Unmarshal([]byte(out.String()), &o) // an apply prints words
	return o, said.String(), err
}
