package charttest

import (
	"io"
	"log"
	"log/slog"
	"os"
	"testing"

	"k8s.io/klog/v2"
)

// buildFolder is where the program is built.
var buildFolder string

// TestMain silences what the libraries log; it tells nothing of the charts.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	folder, err := os.MkdirTemp("", "charttest")
	if err != nil {
		panic(err)
	}
	buildFolder = folder
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}
