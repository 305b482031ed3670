package charttest

import (
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

func TestHelmLint(t *testing.T) {
	version, err := common.ParseKubeVersion(kube)
	if err != nil {
		t.Fatal(err)
	}
	all := ciValues(t)
	all["library"] = values{}
	for name, v := range all {
		folder := chartDir
		if name == "library" {
			folder = "../locksidecar-lib"
		}
		for _, message := range lint.RunAll(folder, v, "lock-system", lint.WithKubeVersion(version)).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}
