// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"testing"

	"github.com/koord-rt/koord-rt/kernel/psi"
)

// A watch whose cgroup was removed is forgotten, so that Follow sets another when the path comes back; one that has already taken its
// place stays.
func TestGoneWatchIsForgotten(t *testing.T) {
	t.Parallel()
	old, young := &psi.Watch{}, &psi.Watch{}
	p := &Pressure{watches: map[string]*psi.Watch{"/a": old, "/b": young}}
	var none *psi.Watch
	p.gone("/a", &old)
	p.gone("/b", &old)
	p.gone("/b", &none)
	if watched, _ := p.State(); len(watched) != 1 || watched[0] != "/b" {
		t.Errorf("watched: %q", watched)
	}
}
