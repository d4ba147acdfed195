// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// rights are what a call uses, as [cluster.Rights] names them: without and with the object's name. A watch that begins with all that is there is a list as well: so
// informers ask an API server that streams lists (WatchList), and of another, as 1.33 is unless told otherwise, they list. Any other watch is none.
func (c *call) rights() []string {
	right := c.Object.Group + " " + c.what()
	out := []string{right, right + " " + c.Object.Name}
	if c.Verb == "watch" && strings.Contains(c.URI, "sendInitialEvents=true") {
		list := strings.Replace(right, " watch ", " list ", 1)
		out = append(out, list, list+" "+c.Object.Name)
	}
	return out
}

// asked is what somebody has asked of the API server and was allowed, as "GROUP VERB RESOURCE" and the same with a name. It fails where a
// call was denied.
func (m *managed) asked(t *testing.T, user string) (used map[string]bool) {
	t.Helper()
	used, denied := map[string]bool{}, map[string]bool{}
	for _, c := range m.audit.read(t, func(c *call) bool { return c.User.Name == user }) {
		right := c.Object.Group + " " + c.what()
		// A server that starts denies everything until it has read the roles: what is granted later was not missing.
		no := c.Response.Code == 401 || c.Response.Code == 403
		if no || denied[right] {
			denied[right] = no
		}
		for _, r := range c.rights() {
			used[r] = used[r] || !no
		}
	}
	for right, last := range denied {
		if last {
			t.Errorf("%s was denied: %s", user, right)
		}
	}
	return used
}

// Why a right may stay unused in a test.
const (
	madeByApply = "an apply that makes the object needs it beside patch, and stands in the log as patch"
	inAdmission = "TestClusterManagerAdmission leads to it"
	inManager   = "TestClusterManager leads to it"
)

// spareOfManager are the rights that TestClusterManager does not use, by the file that grants them, each with the reason.
var spareOfManager = map[string]map[string]string{
	"rbac-slo": {
		"slo.koordinator.sh create nodeslos": madeByApply, "slo.koordinator.sh create nodemetrics": madeByApply,
		"scheduling.sigs.k8s.io create elasticquotas":    madeByApply,
		"koordinator.sh patch koordelasticquotas/status": inAdmission, "quota.koordinator.sh patch teamelasticquotas/status": inAdmission,
		"slo.koordinator.sh delete nodeslos": inAdmission, "slo.koordinator.sh delete nodemetrics": inAdmission,
	},
	"rbac-webhook": {
		" get namespaces": inAdmission, "scheduling.koordinator.sh list reservations": inAdmission, "scheduling.koordinator.sh watch reservations": inAdmission,
		"scheduling.k8s.io get priorityclasses": inAdmission,
	},
}

// spareOfAdmission are those that TestClusterManagerAdmission does not use.
var spareOfAdmission = map[string]map[string]string{
	"rbac-slo": {
		"slo.koordinator.sh create nodeslos": madeByApply, "slo.koordinator.sh create nodemetrics": madeByApply,
		"scheduling.sigs.k8s.io create elasticquotas": madeByApply,
		"events.k8s.io create events":                 inManager, "topology.node.k8s.io patch noderesourcetopologies": inManager,
	},
	"rbac-webhook": {" update secrets koordinator-webhook-certs": inManager},
}

// compareRights compares the roles of a manifest with what their process has used: what is granted is used or excused, and what is excused
// is granted.
func compareRights(t *testing.T, file string, used map[string]bool, excused map[string]string) {
	t.Helper()
	granted, err := cluster.Rights(read(t, manifest(file)))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range cluster.Compare(granted, used, excused) {
		t.Errorf("%s: %s", file, problem)
	}
	t.Logf("%s: %d rights, not used here: %q", file, len(granted), slices.DeleteFunc(granted, func(r string) bool { return used[r] }))
}

// managerRights: nothing was denied, and nothing is granted that neither this test nor TestClusterManagerAdmission uses.
func (m *managed) managerRights(t *testing.T) {
	used := m.asked(t, managerUser)
	for file, excused := range spareOfManager {
		compareRights(t, file, used, excused)
	}
	m.quietly(t)
}

// rights: each role's process has had enough with its own role, and uses what it is granted, but for what only TestClusterManager leads to.
func (a *admitted) rights(t *testing.T) {
	for file, user := range map[string]string{"rbac-slo": sloUser, "rbac-webhook": webhookUser} {
		used := a.asked(t, user)
		// The process that knows another scheduler, which is the role webhook in the manager's own account.
		for right := range a.asked(t, managerUser) {
			used[right] = used[right] || file == "rbac-webhook"
		}
		compareRights(t, file, used, spareOfAdmission[file])
		for right, why := range spareOfAdmission[file] {
			if why == inManager && spareOfManager[file][right] == inAdmission {
				t.Errorf("%s: %q is excused by each test with the other", file, right)
			}
		}
	}
}
