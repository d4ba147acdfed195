// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"slices"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		`{}`:                   "",
		`{"podIP":"10.1.0.5"}`: "10.1.0.5",
		`{"podIP":"10.1.0.5","podIPs":[{"ip":"10.1.0.5"},{"ip":"fd00:0:0::5"}]}`:  "10.1.0.5 fd00::5",
		`{"podIPs":[{"ip":"::ffff:10.1.0.5"},{"ip":"fe80::1%eth0"},{"ip":"::"}]}`: "10.1.0.5",
		`{"podIPs":[{"ip":"10.1.0"},{"ip":""},{}]}`:                               "",
		`{"podIPs":[` + strings.Repeat(`{"ip":"10.1.0.5"},`, 20) + `{}]}`:         strings.TrimSpace(strings.Repeat("10.1.0.5 ", maxIPs)),
	} {
		p, _, err := Decode([]byte(`{"metadata":{"name":"a","namespace":"b","uid":"c"},"status":` + status + `}`))
		if err != nil || !slices.Equal(p.IPs, strings.Fields(want)) {
			t.Errorf("%s: %+v, %v", status, p, err)
		}
	}
}
