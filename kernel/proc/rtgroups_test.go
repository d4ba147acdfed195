// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

func TestParseKallsyms(t *testing.T) {
	t.Parallel()
	const plain = "ffffffff821f7c80 T schedule\nffffffffc0a2b000 t nft_do_chain\t[nf_tables]\n"
	for name, c := range map[string]struct {
		text    string
		want    bool
		refused bool
	}{
		"without":              {text: plain},
		"with":                 {text: plain + "ffffffff813c4280 T sched_rt_can_attach\n", want: true},
		"addresses hidden":     {text: "0000000000000000 T schedule\n0000000000000000 t cpu_rt_runtime_write", want: true},
		"a name like it":       {text: plain + "ffffffff813c4280 T sched_rt_can_attach_not\n"},
		"a line without end":   {text: plain + strings.Repeat("x", 1<<20) + "\nffffffff813c4280 T sched_rt_can_attach\n", want: true},
		"nothing":              {refused: true},
		"without a scheduler":  {text: "ffffffffc0a2b000 t nft_do_chain\t[nf_tables]\n", refused: true},
		"functions of no name": {text: "a b\nc\n\n \n", refused: true},
	} {
		got, err := parseKallsyms(strings.NewReader(c.text))
		if got != c.want || (err != nil) != c.refused {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// What the running kernel's table says is what it was configured with.
func TestRTGroupsOfThisKernel(t *testing.T) {
	t.Parallel()
	got, err := FS("/proc").RTGroups()
	if err != nil {
		t.Fatal(err)
	}
	text, err := kerneltest.KernelConfig()
	if errors.Is(err, fs.ErrNotExist) {
		t.Logf("nothing here says what the kernel was configured with; its functions say %v", got)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	line := kerneltest.ConfigLine(text, "CONFIG_RT_GROUP_SCHED")
	if want := line == "CONFIG_RT_GROUP_SCHED=y"; got != want {
		t.Errorf("RT groups: %v, and the kernel is configured with %q", got, line)
	}
}

func FuzzParseKallsyms(f *testing.F) {
	f.Add("ffffffff813c4280 T sched_rt_can_attach\n")
	f.Add("ffffffff821f7c80 T schedule\n")
	f.Fuzz(func(t *testing.T, text string) {
		has, err := parseKallsyms(strings.NewReader(text))
		if has && err != nil {
			t.Errorf("%v and %v", has, err)
		}
		if has && !strings.Contains(text, "sched_rt_can_attach") && !strings.Contains(text, "cpu_rt_runtime_write") {
			t.Error("found what is not there")
		}
	})
}
