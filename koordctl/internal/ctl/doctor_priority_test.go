// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// What koord-nri says of its scheduling is compared with what the kernel does; only who was told so may be out of real time silently.
func TestDoctorOfPriority(t *testing.T) {
	t.Parallel()
	const shares = "shares a processor by its nice value: "
	for name, c := range map[string]struct {
		told   string
		policy int
		result verdict
		want   string
	}{
		"real time":             {status.InRealTime, 2, ok, status.InRealTime},
		"changed by hand":       {status.InRealTime, 0, warn, "policy 0"},
		"given by hand":         {shares + "the kernel refuses", 2, warn, "policy 2"},
		"refused":               {shares + "the kernel refuses", 0, warn, "the kernel refuses"},
		"not wanted":            {shares + status.RealTimeOff, 0, ok, status.RealTimeOff},
		"an older one":          {"", 0, warn, "not known"},
		"cannot be given back":  {status.InRealTime + "; it cannot be given back", 0, warn, "policy 0"},
		"restless, taken again": {shares + "real time was given back, because", 0, warn, "given back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "6.12")
			s := healthy()
			s.Scheduling = c.told
			h.alive(t, s)
			stat := filepath.Join(h.dir, "proc", strconv.Itoa(os.Getpid()), "stat")
			text, err := os.ReadFile(stat)
			if err != nil {
				t.Fatal(err)
			}
			head, tail, _ := strings.Cut(string(text), ") ")
			fields := strings.Fields(tail)
			fields[41-3] = strconv.Itoa(c.policy)
			h.file(t, "/proc/"+strconv.Itoa(os.Getpid())+"/stat", head+") "+strings.Join(fields, " ")+"\n")

			out, _ := h.run(t, "doctor", "-o", "json") // other checks of this host may fail
			var checks []check
			if err := json.Unmarshal([]byte(out), &checks); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, got := range checks {
				if got.Name != "priority" {
					continue
				}
				if got.Result != c.result || !strings.Contains(got.Detail, c.want) || (got.Next == "") != (c.result == ok) {
					t.Errorf("%+v, want %s with %q", got, c.result, c.want)
				}
				return
			}
			t.Error("no check of the priority")
		})
	}
}
