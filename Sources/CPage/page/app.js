main.textContent = "Loading…";
